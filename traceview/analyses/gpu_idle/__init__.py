"""The analysis `gpu-idle`."""

from traceview.analyses.gpu_idle.analysis import ANALYSIS as ANALYSIS

"""The analysis `gpu-idle`."""

from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS as ANALYSIS

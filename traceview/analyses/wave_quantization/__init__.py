"""The analysis `wave-quantization`."""

from traceview.analyses.wave_quantization.analysis import ANALYSIS as ANALYSIS

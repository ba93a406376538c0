"""The analysis `wave-quantization`."""

from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS as ANALYSIS

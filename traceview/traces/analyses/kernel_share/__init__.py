"""The analysis `kernel-share`."""

from traceview.traces.analyses.kernel_share.analysis import ANALYSIS as ANALYSIS

"""The analysis `kernel-share`."""

from traceview.analyses.kernel_share.analysis import ANALYSIS as ANALYSIS

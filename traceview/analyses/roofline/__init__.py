"""The analysis `roofline`."""

from traceview.analyses.roofline.analysis import ANALYSIS as ANALYSIS

"""The analysis `steps`."""

from traceview.analyses.steps.analysis import ANALYSIS as ANALYSIS

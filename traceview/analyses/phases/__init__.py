"""The analysis `phases`."""

from traceview.analyses.phases.analysis import ANALYSIS as ANALYSIS

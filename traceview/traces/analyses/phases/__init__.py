"""The analysis `phases`."""

from traceview.traces.analyses.phases.analysis import ANALYSIS as ANALYSIS

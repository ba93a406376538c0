"""The analysis `trace-health`."""

from traceview.analyses.trace_health.analysis import ANALYSIS as ANALYSIS

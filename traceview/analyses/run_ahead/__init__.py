"""The analysis `run-ahead`."""

from traceview.analyses.run_ahead.analysis import ANALYSIS as ANALYSIS

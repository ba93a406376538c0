"""The analysis `sync-stalls`."""

from traceview.analyses.sync_stalls.analysis import ANALYSIS as ANALYSIS

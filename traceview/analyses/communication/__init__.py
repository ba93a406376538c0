"""The analysis `communication`."""

from traceview.analyses.communication.analysis import ANALYSIS as ANALYSIS

"""The analysis `memory`."""

from traceview.analyses.memory.analysis import ANALYSIS as ANALYSIS

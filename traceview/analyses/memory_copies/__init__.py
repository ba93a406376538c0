"""The analysis `memory-copies`."""

from traceview.analyses.memory_copies.analysis import ANALYSIS as ANALYSIS

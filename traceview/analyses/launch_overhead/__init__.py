"""The analysis `launch-overhead`."""

from traceview.analyses.launch_overhead.analysis import ANALYSIS as ANALYSIS

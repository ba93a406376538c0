"""The analysis `load-widths`."""

from traceview.analyses.load_widths.analysis import ANALYSIS as ANALYSIS

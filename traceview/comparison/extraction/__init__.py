"""From a trace to the figures of its run."""

from traceview.comparison.extraction.run_figures import figures_of

__all__ = ["figures_of"]

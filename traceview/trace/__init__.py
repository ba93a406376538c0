"""Traces: the model, its schema and one reader a format. Opens files read-only."""

from traceview.trace.model import Selection, Trace, fact

__all__ = ["Selection", "Trace", "fact"]

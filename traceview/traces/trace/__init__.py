"""Traces: the schema and model of a recording, and one reader per file format.

`load.load` opens a file, read-only. `nsys` reads Nsight Systems exports, `kineto` traces of
torch.profiler, `ncu` the counters of Nsight Compute, `stored` files of traceview, `sqlite` the
columns of any SQLite table. `memory` estimates the memory of a report. `scrub` removes private data
from a copy.
"""

from traceview.traces.trace.model import Fact, Selection, Trace, fact, fact_without_ranges

__all__ = ["Fact", "Selection", "Trace", "fact", "fact_without_ranges"]

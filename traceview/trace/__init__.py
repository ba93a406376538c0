"""Traces: the schema and model of a recording, and one reader per file format.

`load.load` opens a file, read-only. `nsys` reads Nsight Systems exports, `ncu` Nsight Compute's CSV
files, `sqlite` the columns of any SQLite table. `memory` estimates what a report needs. `scrub`
removes private data from a copy.
"""

from traceview.trace.model import Selection, Trace, fact

__all__ = ["Selection", "Trace", "fact"]

"""The SQLite file that holds the tables of a Trace, whatever recorder they came from.

Each table of schema.TABLES is a table of the same name and columns. A text is stored once per
column, in TRACEVIEW_TEXTS; the columns hold its number. NULL is an absent value; a table that was
not recorded is missing. TRACEVIEW_TRACE names the recorder, TRACEVIEW_RUN holds what `traceview
record` stored about the run. Kernel code and source lines are stored as that command adds them to
an nsys export.
"""

from __future__ import annotations

from traceview.trace.nsys import added_tables
from traceview.trace.schema import TABLES

ABOUT = "TRACEVIEW_TRACE"
TEXTS = "TRACEVIEW_TEXTS"
RUN = "TRACEVIEW_RUN"
FORMAT = 1
"""Version of this layout; a reader refuses newer ones."""
STORED_AS = {"kernel_code": added_tables.KERNELS_TABLE, "source_lines": added_tables.EXCERPTS_TABLE}
"""Tables with a layout of their own, whose texts are stored in place, by their SQL names."""
# Counters of Nsight Compute come from a file beside the trace.
NUMBERED = tuple(name for name in TABLES if name not in {*STORED_AS, "kernel_counters"})
"""Tables whose texts are numbered."""

"""Calls of the OS runtime libraries in an nsys export (--trace=osrt)."""

from __future__ import annotations

from traceview.trace.nsys.cpu.native_samples import os_stacks
from traceview.trace.nsys.names import UNNAMED, filled
from traceview.trace.nsys.rows import ExportTable, Staged
from traceview.trace.nsys.tables import Reader

OS_CALLS = ExportTable("OSRT_API", ("start", "end", "nameId"), ("globalTid", "callchainId"))


def os_calls(reader: Reader) -> Staged | None:
    """Calls of the threads that occur in other tables, in file order."""
    rows = reader.export.rows(OS_CALLS)
    if rows is None:
        return None
    rows = rows.where(reader.owners.has_threads(rows))
    thread, process = reader.owners.threads(rows)
    return {
        **rows.span(),
        "thread": thread,
        "process": process,
        "name": filled(reader.names.texts(rows.numbers("nameId")), UNNAMED),
        "stack": os_stacks(rows),
    }

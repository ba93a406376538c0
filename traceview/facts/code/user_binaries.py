"""Code given by the user for kernels that were recorded without it (--cubin)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from traceview import groups
from traceview.errors import InputError
from traceview.ptx.model import Compiled
from traceview.tables import Table
from traceview.trace import Trace
from traceview.trace.model import Facts
from traceview.trace.nsys.added_tables import packed
from traceview.trace.schema.program import KERNEL_CODE

_MOST_NAMES = 6


def with_code(trace: Trace, given: Sequence[Compiled]) -> Trace:
    """The trace with the code of those given kernels that ran in it.

    Raises InputError if none did.
    """
    kernels = trace.recorded("kernels")
    texts = [kernels.texts(column) for column in ("name", "mangled_name")]
    used = [text.values_of(groups.different(text.codes[text.codes >= 0])) for text in texts]
    ran = {name for names in used for name in names}
    ours = [kernel for kernel in given if kernel.name in ran]
    if not ours:
        different = list(dict.fromkeys(kernel.name for kernel in given))
        listed = ", ".join(name[:60] for name in different[:_MOST_NAMES])
        more = " …" if len(different) > _MOST_NAMES else ""
        what = "no kernel of the files given with --cubin ran in the trace"
        raise InputError(what, f"they have {listed}{more}")
    # A file with many kernels is packed once.
    blobs = {code: packed(code) for code in {kernel.cubin for kernel in ours} if code}
    codes = {text: packed(text.encode()) for text in {kernel.ptx for kernel in ours} if text}
    rows: list[Mapping[str, Any]] = list(trace.recorded("kernel_code").rows())
    rows += [
        {
            "name": kernel.name,
            "arch": kernel.arch,
            "signature": "[]",
            "constexprs": "{}",
            "options": "{}",
            "source_file": kernel.source_file,
            "ptx": codes.get(kernel.ptx or ""),
            "cubin": blobs.get(kernel.cubin or b""),
        }
        for kernel in ours
    ]
    columns = {
        column.name: [row.get(column.name) for row in rows] for column in KERNEL_CODE.columns
    }
    table = Table(KERNEL_CODE.columns, columns)
    return replace(trace, tables={**trace.tables, KERNEL_CODE.name: table}, _facts=Facts())

"""Code given by the user for kernels that were recorded without it (--cubin)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

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
    names = [kernels.texts(column) for column in ("name", "mangled_name")]
    ran = {str(value) for texts in names for value in texts.values[sorted({*texts.codes} - {-1})]}
    ours = [kernel for kernel in given if kernel.name in ran]
    if not ours:
        raise InputError(*_no_match(given))
    # A file with many kernels is packed once.
    blobs = {code: packed(code) for code in {kernel.cubin for kernel in ours} if code}
    texts = {text: packed(text.encode()) for text in {kernel.ptx for kernel in ours} if text}
    before = list(trace.recorded("kernel_code").rows())
    added = [_row(kernel, blobs, texts) for kernel in ours]
    table = Table(KERNEL_CODE.columns, _columns([*before, *added]))
    return replace(trace, tables={**trace.tables, KERNEL_CODE.name: table}, _facts=Facts())


def _no_match(given: Sequence[Compiled]) -> tuple[str, str]:
    different = list(dict.fromkeys(kernel.name for kernel in given))
    listed = ", ".join(name[:60] for name in different[:_MOST_NAMES])
    more = " …" if len(different) > _MOST_NAMES else ""
    return "no kernel of the files given with --cubin ran in the trace", f"they have {listed}{more}"


def _row(
    kernel: Compiled, blobs: Mapping[bytes, bytes], texts: Mapping[str, bytes]
) -> dict[str, Any]:
    known = {
        "name": kernel.name,
        "arch": kernel.arch,
        "signature": "[]",
        "constexprs": "{}",
        "options": "{}",
        "source_file": kernel.source_file,
        "ptx": texts.get(kernel.ptx or ""),
        "cubin": blobs.get(kernel.cubin or b""),
    }
    return {column.name: known.get(column.name) for column in KERNEL_CODE.columns}


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {column.name: [row[column.name] for row in rows] for column in KERNEL_CODE.columns}

"""The accesses of a kernel as the rows of a table: PTX, and beside it what it became in SASS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from traceview.analyses.base import TableSpec
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.sass_vs_ptx import Place, by_place
from traceview.ptx.model import Access
from traceview.render.kernels.source_names import SourceNames
from traceview.tables import Cell, Column

# Eight threads' rows at once: ldmatrix and stmatrix, LDSM and STSM.
_MATRIX = re.compile(r"matrix|\b(?:LD|ST)SM\b")
ACCESSES = TableSpec(
    "accesses",
    "One row an opcode of a source line",
    (
        Column("source", "text", "the user's line"),
        Column("ptx", "text", "opcode in PTX", nullable=True),
        Column("width_bits", "int64", "what a thread moves in one instruction", nullable=True),
        Column("count", "int64", "instructions", nullable=True),
        Column("loop", "int64", "loops around it", nullable=True),
        Column("sass", "text", "what the same line became in SASS", nullable=True),
        Column("kind", "text", "load, store, …"),
        Column("space", "text", "which memory"),
        Column("masked", "bool", "under a predicate"),
    ),
    brief=("source", "ptx", "width_bits", "count", "loop", "sass"),
)


def access_rows(kernel: KernelReport, names: SourceNames) -> Iterator[dict[str, Cell]]:
    """A row for each PTX opcode of a source line, beside it what the line became in SASS.

    Where there is no PTX for a line, a row tells of the SASS alone.
    """
    written, running = by_place(kernel.accesses, "ptx"), by_place(kernel.accesses, "sass")
    for place in sorted({*written, *running}, key=_place_order):
        ptx, sass = _merged(written.get(place, ())), _merged(running.get(place, ()))
        if not ptx:
            yield from (_row(access, names) | {"sass": access.opcode} for access in sass)
            continue
        for access, text in zip(ptx, _beside(ptx, sass), strict=True):
            yield _row(access, names) | {"ptx": access.opcode, "sass": text}


def _merged(accesses: Iterable[Access]) -> list[Access]:
    """Accesses that differ in their predicate alone as one, masked if one of them is."""
    merged: dict[tuple[str, int], Access] = {}
    for access in accesses:
        key = (access.opcode, access.loop_depth)
        same = merged.get(key)
        masked = access.predicated or (same is not None and same.predicated)
        count = access.count + (same.count if same else 0)
        merged[key] = replace(access, predicated=masked, count=count)
    return list(merged.values())


def _beside(ptx: Sequence[Access], sass: Iterable[Access]) -> list[str | None]:
    """What to write beside each PTX access: SASS of its kind, as wide, in as many loops."""
    texts: list[list[str]] = [[] for _ in ptx]
    for access in sass:
        unlike = (
            (*_unlike(written, access), len(said), at)
            for at, (written, said) in enumerate(zip(ptx, texts, strict=True))
        )
        *_, likest = min(unlike)
        texts[likest].append(f"{access.count} × {access.opcode}")
    return [" + ".join(said) or None for said in texts]


def _unlike(ptx: Access, sass: Access) -> tuple[bool, bool, bool]:
    """What speaks against an instruction of SASS being that of PTX, the gravest first."""
    matrices = (bool(_MATRIX.search(access.opcode)) for access in (ptx, sass))
    return (
        len(set(matrices)) > 1,
        ptx.width_bits != sass.width_bits,
        ptx.loop_depth != sass.loop_depth,
    )


def _row(access: Access, names: SourceNames) -> dict[str, Cell]:
    return {
        "source": names.of_line(access.source),
        "ptx": None,
        "sass": None,
        "width_bits": access.width_bits,
        "count": access.count,
        "loop": access.loop_depth,
        "kind": access.kind,
        "space": access.space,
        "masked": access.predicated,
    }


def _place_order(place: Place) -> tuple[bool, str, int, str, str]:
    source, kind, space = place
    line = (source.file, source.line) if source else ("", 0)
    return (source is None, *line, kind, space)

"""The accesses of a kernel as table rows: PTX, next to the SASS that it was compiled to."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.sass_vs_ptx import Place, by_place
from traceview.ptx.model import Access, RequestCost
from traceview.render.kernels.source_names import SourceNames
from traceview.tables import Cell, Column

# ldmatrix and stmatrix (LDSM and STSM) access the rows of eight threads at once.
_MATRIX = re.compile(r"matrix|\b(?:LD|ST)SM\b")
ACCESSES = TableSpec(
    "accesses",
    "One row per opcode of a source line",
    (
        Column("source", "text", "source line"),
        Column("ptx", "text", "opcode in PTX", nullable=True),
        Column("width_bits", "int64", "bits per thread per instruction", nullable=True),
        Column("count", "int64", "number of instructions", nullable=True),
        Column("loop", "int64", "loop nesting depth", nullable=True),
        Column("sass", "text", "SASS instructions of the same line", nullable=True),
        Column("request", "text", "what a warp's request costs, by PTX addresses", nullable=True),
        Column("kind", "text", "load, store, …"),
        Column("space", "text", "memory space"),
        Column("masked", "bool", "executed under a predicate"),
    ),
    brief=("source", "ptx", "width_bits", "count", "loop", "sass"),
)


def access_rows(kernel: KernelReport, names: SourceNames) -> Iterator[dict[str, Cell]]:
    """A row per PTX opcode of a source line, with the SASS of the line beside it.

    A line without PTX has rows of its SASS alone. Spills, which ptxas adds at many lines, have a
    row per kind and loop depth.
    """
    in_ptx, in_sass = by_place(kernel.accesses, "ptx"), by_place(kernel.accesses, "sass")
    spills = [place for place in in_sass if place[2] == "local" and place not in in_ptx]
    for place in sorted({*in_ptx, *in_sass}.difference(spills), key=_place_order):
        ptx, sass = _merged(in_ptx.get(place, ())), _merged(in_sass.get(place, ()))
        if not ptx:
            yield from (_row(access, names) | {"sass": access.opcode} for access in sass)
            continue
        for access, text in zip(ptx, _beside(ptx, sass), strict=True):
            yield _row(access, names) | {"ptx": access.opcode, "sass": text}
    yield from _spill_rows([access for place in spills for access in in_sass[place]], names)


def _spill_rows(accesses: Sequence[Access], names: SourceNames) -> Iterator[dict[str, Cell]]:
    groups: dict[tuple[str, int], list[Access]] = defaultdict(list)
    for access in accesses:
        groups[access.kind, access.loop_depth].append(access)
    for _, group in sorted(groups.items()):
        lines = {names.of_line(access.source) for access in group}
        opcodes = Counter[str]()
        for access in group:
            opcodes[access.opcode] += access.count
        yield _row(group[0], names) | {
            "source": units.counted(len(lines), "line") if len(lines) > 1 else lines.pop(),
            "width_bits": group[0].width_bits if len(opcodes) == 1 else None,
            "count": opcodes.total(),
            "sass": _opcodes(opcodes) if len(opcodes) > 1 else group[0].opcode,
            "masked": any(access.predicated for access in group),
        }


def _merged(accesses: Iterable[Access]) -> list[Access]:
    """Merge accesses that differ only in their predicate; masked if any of them is."""
    merged: dict[tuple[str, int], Access] = {}
    for access in accesses:
        key = (access.opcode, access.loop_depth)
        same = merged.get(key)
        masked = access.predicated or (same is not None and same.predicated)
        count = access.count + (same.count if same else 0)
        merged[key] = replace(access, predicated=masked, count=count)
    return list(merged.values())


def _beside(ptx: Sequence[Access], sass: Iterable[Access]) -> list[str | None]:
    """The SASS beside each PTX access: the most similar in kind, width and loop depth."""
    counts: list[Counter[str]] = [Counter() for _ in ptx]
    for access in sass:
        mismatches = (
            (*_mismatch(candidate, access), len(beside), at)
            for at, (candidate, beside) in enumerate(zip(ptx, counts, strict=True))
        )
        *_, closest = min(mismatches)
        counts[closest][access.opcode] += access.count
    return [_opcodes(beside) or None for beside in counts]


def _opcodes(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{count} × {opcode}" for opcode, count in counts.items())


def _mismatch(ptx: Access, sass: Access) -> tuple[bool, bool, bool]:
    """The differences of a SASS access from a PTX access, most important first."""
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
        "request": request_text(access.cost),
    }


def request_text(cost: RequestCost | None) -> str | None:
    """The cost of a request: `32 sectors (ideal 4)`, `2 wavefronts`; None if unknown."""
    if cost is None:
        return None
    pairs = (
        (cost.sectors, cost.ideal_sectors, "sector"),
        (cost.wavefronts, cost.ideal_wavefronts, "wavefront"),
    )
    return (
        " · ".join(_against(actual, least, name) for actual, least, name in pairs if actual) or None
    )


def _against(taken: float, least: float | None, name: str) -> str:
    shown, ideal = units.count(taken), units.count(least)
    text = f"{shown} {name}{'' if taken == 1 else 's'}"
    return text if shown == ideal else f"{text} (ideal {ideal})"


def _place_order(place: Place) -> tuple[bool, str, int, str, str]:
    source, kind, space = place
    line = (source.file, source.line) if source else ("", 0)
    return (source is None, *line, kind, space)

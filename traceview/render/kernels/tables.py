"""The tables of a kernel: accesses, what-if configurations, and details for experts.

An access in PTX stands next to the SASS that it was compiled to.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from traceview.base import units
from traceview.base.tables import Cell, Table, TableSpec, column_list
from traceview.kernels.inspect import kernel_report
from traceview.kernels.inspect.recompilations import Place, by_place
from traceview.kernels.ptx.instruction_mix import ClassCounts
from traceview.kernels.ptx.model import Access, RequestCost, SourceLine
from traceview.render.base.text import table_of
from traceview.render.kernels.names import SourceNames

# ldmatrix and stmatrix (LDSM and STSM) access the rows of eight threads at once.
_MATRIX = re.compile(r"matrix|\b(?:LD|ST)SM\b")
ACCESSES = TableSpec(
    "accesses",
    "One row per opcode of a source line",
    column_list("""
        source text: source line
        ptx text?: opcode in PTX
        width_bits int64?: bits per thread per instruction
        count int64?: number of instructions
        loop int64?: loop nesting depth
        sass text?: SASS instructions of the same line
        request text?: what a warp's request costs, by PTX addresses
        kind text: load, store, …
        space text: memory space
        masked bool: executed under a predicate
    """),
    brief="source ptx width_bits count loop sass",
)


def access_table(kernel: kernel_report.KernelReport, names: SourceNames) -> Table:
    """A row per PTX opcode of a source line, with the SASS of the line beside it.

    A line without PTX has rows of its SASS alone. Spills, which ptxas adds at many lines, have a
    row per kind and loop depth.
    """
    return Table.from_rows(ACCESSES.columns, list(_access_rows(kernel, names)))


def _access_rows(
    kernel: kernel_report.KernelReport, names: SourceNames
) -> Iterator[dict[str, Cell]]:
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


WHAT_IF = TableSpec(
    "what_if",
    "One row per configuration, each compiled; > is the kernel as it is",
    column_list("""
        now text: > for the kernel as it is
        warps int64: warps per block
        stages int64?: software pipeline stages
        tile text: tile sizes
        registers int64?: registers per thread
        shared_bytes int64?: shared memory per block
        occupancy_pct float64?: theoretical occupancy
        limited_by sentence: what limits the occupancy
        blocks_per_sm int64?: blocks that an SM holds at once
        waves float64?: grid ÷ blocks that the GPU holds at once
        spill_bytes int64?: spilled per thread
    """),
    brief="now warps stages tile registers shared_bytes occupancy_pct limited_by",
)


STALLS = TableSpec(
    "warp_stalls",
    "One row per source line (or instruction) with 1 % of samples",
    column_list("""
        source text: line, or offset in the SASS, of the next instruction of warps
        samples int64: samples of warps there
        share_pct float64: share of the kernel's samples
        stalls sentence: its samples by the reason for not issuing
        waits_for sentence?: where the results come from
    """),
    brief="source share_pct stalls waits_for",
)
_LEAST_STALLS_PCT = 1.0
_MOST_STALLS = 3


def stall_table(stalls: kernel_report.WarpStalls, names: SourceNames) -> Table:
    """A row per place with samples, the most first."""

    def share_pct(samples: int) -> float:
        return 100 * samples / stalls.samples

    def by_reason(stalled: kernel_report.StalledPlace) -> str:
        most, *others = list(stalled.stalls.items())[:_MOST_STALLS]
        worth = [each for each in others if share_pct(each[1]) >= _LEAST_STALLS_PCT]
        return " · ".join(
            f"{reason.replace('_', ' ')} {units.percent(share_pct(samples))}"
            for reason, samples in (most, *worth)
        )

    def name(each: kernel_report.StalledPlace | kernel_report.AwaitedPlace) -> str:
        offset = each.place.offset
        return names.of_line(each.place.source) if offset is None else f"{offset:#06x}"

    def with_opcodes(each: kernel_report.StalledPlace | kernel_report.AwaitedPlace) -> str:
        return f"{name(each)} ({', '.join(each.opcodes[:_MOST_STALLS])})"

    return table_of(
        STALLS,
        [each for each in stalls.places if share_pct(each.samples) >= _LEAST_STALLS_PCT],
        source=lambda each: name(each) if each.place.offset is None else with_opcodes(each),
        share_pct=lambda each: share_pct(each.samples),
        stalls=by_reason,
        waits_for=lambda each: " · ".join(map(with_opcodes, each.waits_for[:_MOST_STALLS])) or None,
    )


def what_if_table(kernel: kernel_report.KernelReport) -> tuple[TableSpec, Table]:
    """A row per configuration; the declaration explains the sizes of a tile that has several."""
    names = [name for name, _ in kernel.what_if[0].tile] if kernel.what_if else []
    tile = f". tile: {'×'.join(names)}" if len(names) > 1 else ""
    table = table_of(
        WHAT_IF,
        kernel.what_if,
        now=lambda row: ">" if row.current else "",
        warps="num_warps",
        stages="num_stages",
        tile=_tile_text,
        shared_bytes="shared_memory_bytes",
        occupancy_pct="occupancy.theoretical_occupancy_pct",
        limited_by=lambda row: kernel_report.limited_by(row).replace(" and ", ", "),
        blocks_per_sm="occupancy.blocks_per_sm",
    )
    return replace(WHAT_IF, meaning=f"{WHAT_IF.meaning}{tile}"), table


def _tile_text(row: kernel_report.WhatIf) -> str:
    """The sizes of a tile, `64×128`, or a single one with its name, `BLOCK=64`."""
    if len(row.tile) == 1:
        name, size = row.tile[0]
        return f"{name}={size}"
    return "×".join(str(size) for _, size in row.tile)


LOOPS = TableSpec(
    "loops",
    "One row per loop, in program order, with the instructions of inner loops",
    column_list("""
        source text: line of the loop
        loop int64: loop nesting depth, itself included
        instructions int64: number of instructions
        share_pct float64: share of the kernel's instructions
        instruction_mix sentence: instructions by class
    """),
    brief="source loop instructions share_pct instruction_mix",
)
CYCLES = TableSpec(
    "loop_cycles",
    "One row per innermost loop: the cycles of a pass (an estimate)",
    column_list("""
        source text: line of the loop
        instructions int64: instructions of the path of most cycles
        warp_cycles int64: cycles of one warp, by the stall counts of the code
        warps_per_sm int64?: warps on an SM
        sm_cycles float64?: cycles of an SM with these warps
        limit text?: what takes the SM's cycles
        loaded_bytes int64: bytes that a warp moves from or to L2, without TMA
    """),
    brief="source instructions warp_cycles warps_per_sm sm_cycles limit",
)
LINES = TableSpec(
    "instructions",
    "One row per source line",
    column_list("""
        source text: source line
        loop int64: loop nesting depth of its deepest instruction
        instructions int64: number of instructions
        hottest_loop_pct float64?: its share of the hottest loop
        instruction_mix sentence: instructions by class
    """),
    brief="source loop instructions hottest_loop_pct instruction_mix",
    detail=True,
)

CONVERSIONS = TableSpec(
    "layout_conversions",
    "One row per change of layout in TTGIR",
    column_list("""
        source text: source line
        variable text?: name of the tensor in the source
        from_layout text: layout before
        to_layout text: layout after
        through text?: registers, shuffles or shared memory
        size_bytes int64: bytes of the tensor, for one block
        loop int64: loop nesting depth
    """),
    brief="source from_layout to_layout through size_bytes loop",
)

WAITS = TableSpec(
    "waits",
    "One row per wait of the hottest loop for asynchronous copies and matrix products",
    column_list("""
        source text: source line
        waits_for text: cp.async, TMA, bulk store, wgmma or tcgen05
        in_flight int64: groups in flight when the wait begins
        left int64: groups in flight when it ends
        meanwhile sentence: arithmetic between their issue and the wait
    """),
    brief="source waits_for in_flight left meanwhile",
)

SPILLS = TableSpec(
    "spills",
    "One row per source line whose values are spilled, per thread",
    column_list("""
        source text: line that computes the value
        variable text?: its name in the source
        stored_bytes int64: bytes written by spill stores in the code
        loaded_bytes int64: bytes read back by loads in the code
        loads int64: number of loads
        in_hottest_loop int64: loads in the hottest loop
    """),
    brief="source variable stored_bytes loaded_bytes in_hottest_loop",
)
HOLDERS = TableSpec(
    "registers_at_the_peak",
    "One row per source line that wrote registers live where most are",
    column_list("""
        source text: line that wrote the registers
        variable text?: its name in the source
        registers int64: live registers per thread
    """),
    brief="source variable registers",
    detail=True,
)


def detail_tables(
    kernel: kernel_report.KernelReport, names: SourceNames
) -> Iterator[tuple[TableSpec, Table]]:
    """The detailed tables that have rows, with their declarations."""
    mix, live = kernel.mix, kernel.live_registers
    hottest = mix.hottest_loop if mix else None

    def variable(source: SourceLine | None) -> str | None:
        return kernel.variables.get(source) if source else None

    def table(
        spec: TableSpec, listed: Sequence[Any], **cells: Any
    ) -> Iterator[tuple[TableSpec, Table]]:
        if listed:
            name = {"source": lambda each: names.of_line(each.source)}
            yield spec, table_of(spec, listed, **name | cells)

    yield from table(
        SPILLS,
        kernel.spilled_values,
        variable=lambda value: variable(value.source),
        stored_bytes="store_bytes",
        loaded_bytes="load_bytes",
    )
    yield from table(
        HOLDERS,
        live.holders if live else (),
        source=lambda holder: names.of_line(holder[0]),
        variable=lambda holder: variable(holder[0]),
        registers=lambda holder: holder[1],
    )
    yield from table(
        WAITS,
        kernel.async_waits,
        waits_for="kind",
        meanwhile=lambda wait: most_first(ClassCounts(wait.meanwhile)) or "nothing",
    )
    yield from table(CONVERSIONS, kernel.layout_conversions, through="path", loop="loop_depth")
    yield from table(
        LOOPS,
        mix.loops if mix else (),
        loop="depth",
        instructions="counts.total",
        share_pct=lambda loop: 100 * loop.counts.total / mix.counts.total if mix else None,
        instruction_mix=lambda loop: most_first(loop.counts),
    )
    yield from table(
        CYCLES,
        kernel.loop_cycles,
        sm_cycles=lambda loop: (
            loop.warps_per_sm * loop.sm_cycles_per_warp
            if loop.warps_per_sm and loop.sm_cycles_per_warp
            else None
        ),
    )
    yield from table(
        LINES,
        # Those of the hottest loop first.
        sorted(mix.lines if mix else (), key=lambda line: -line.in_hottest_loop),
        loop="loop_depth",
        instructions="counts.total",
        hottest_loop_pct=lambda line: (
            100 * line.in_hottest_loop / hottest.counts.total
            if hottest and line.in_hottest_loop
            else None
        ),
        instruction_mix=lambda line: most_first(line.counts),
    )


def most_first(counts: ClassCounts) -> str:
    """Instruction classes with their counts, largest first: `fp32 170 · integer 48`."""
    classes = sorted(counts.by_class.items(), key=lambda item: -item[1])
    return " · ".join(f"{name} {units.count(number)}" for name, number in classes)

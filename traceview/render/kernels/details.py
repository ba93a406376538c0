"""Detailed tables of a kernel, for experts; a terminal shows them with `--all`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.inspect.kernel_report import KernelReport
from traceview.ptx.async_groups import COPIES
from traceview.ptx.instruction_mix import ClassCounts, InstructionMix
from traceview.ptx.model import SourceLine
from traceview.render.kernels.source_names import SourceNames
from traceview.tables import Cell, Column, Table

_MOST_SPILLED = 3
Row = dict[str, Cell]

LOOPS = TableSpec(
    "loops",
    "One row per loop, in program order, with the instructions of inner loops",
    (
        Column("source", "text", "line of the loop"),
        Column("loop", "int64", "loop nesting depth, itself included"),
        Column("instructions", "int64", "number of instructions"),
        Column("share_pct", "float64", "share of the kernel's instructions"),
        Column("instruction_mix", "text", "instructions by class", prose=True),
    ),
    brief=("source", "loop", "instructions", "share_pct", "instruction_mix"),
)
LINES = TableSpec(
    "instructions",
    "One row per source line",
    (
        Column("source", "text", "source line"),
        Column("loop", "int64", "loop nesting depth of its deepest instruction"),
        Column("instructions", "int64", "number of instructions"),
        Column("hottest_loop_pct", "float64", "its share of the hottest loop", nullable=True),
        Column("instruction_mix", "text", "instructions by class", prose=True),
    ),
    brief=("source", "loop", "instructions", "hottest_loop_pct", "instruction_mix"),
    detail=True,
)

CONVERSIONS = TableSpec(
    "layout_conversions",
    "One row per change of layout in TTGIR",
    (
        Column("source", "text", "source line"),
        Column("variable", "text", "name of the tensor in the source", nullable=True),
        Column("from_layout", "text", "layout before"),
        Column("to_layout", "text", "layout after"),
        Column("through", "text", "registers, shuffles or shared memory", nullable=True),
        Column("size_bytes", "int64", "bytes of the tensor, for one block"),
        Column("loop", "int64", "loop nesting depth"),
    ),
    brief=("source", "from_layout", "to_layout", "through", "size_bytes", "loop"),
)

WAITS = TableSpec(
    "waits",
    "One row per wait of the hottest loop for asynchronous copies and matrix products",
    (
        Column("source", "text", "source line"),
        Column("waits_for", "text", "cp.async, TMA, bulk store, wgmma or tcgen05"),
        Column("in_flight", "int64", "groups in flight when the wait begins"),
        Column("left", "int64", "groups in flight when it ends"),
        Column("meanwhile", "text", "arithmetic between their issue and the wait", prose=True),
    ),
    brief=("source", "waits_for", "in_flight", "left", "meanwhile"),
)

SPILLS = TableSpec(
    "spills",
    "One row per source line whose values are spilled, per thread",
    (
        Column("source", "text", "line that computes the value"),
        Column("variable", "text", "its name in the source", nullable=True),
        Column("stored_bytes", "int64", "bytes written by spill stores in the code"),
        Column("loaded_bytes", "int64", "bytes read back by loads in the code"),
        Column("loads", "int64", "number of loads"),
        Column("in_hottest_loop", "int64", "loads in the hottest loop"),
    ),
    brief=("source", "variable", "stored_bytes", "loaded_bytes", "in_hottest_loop"),
)
HOLDERS = TableSpec(
    "registers_at_the_peak",
    "One row per source line that wrote registers live where most are",
    (
        Column("source", "text", "line that wrote the registers"),
        Column("variable", "text", "its name in the source", nullable=True),
        Column("registers", "int64", "live registers per thread"),
    ),
    brief=("source", "variable", "registers"),
    detail=True,
)


def detail_tables(kernel: KernelReport, names: SourceNames) -> Iterator[tuple[TableSpec, Table]]:
    """The tables that have rows, with their declarations."""
    tables = (
        (SPILLS, spill_rows(kernel, names)),
        (HOLDERS, holder_rows(kernel, names)),
        (WAITS, wait_rows(kernel, names)),
        (CONVERSIONS, conversion_rows(kernel, names)),
        (LOOPS, loop_rows(kernel, names)),
        (LINES, line_rows(kernel, names)),
    )
    for spec, rows in tables:
        if listed := list(rows):
            yield spec, Table.from_rows(spec.columns, listed)


def hottest_loop(kernel: KernelReport, names: SourceNames) -> str:
    """The loop that likely takes most time, and its instructions; empty without a loop."""
    mix = kernel.mix
    loop = mix.hottest_loop if mix else None
    if mix is None or loop is None:
        return ""
    of_all = f"of {units.count(mix.counts.total)} {mix.level.upper()} instructions"
    share = f"{units.count(loop.counts.total)} {of_all}"
    place = f"{names.of_line(loop.source)}, " if loop.source else ""
    return f"{place}{share}, {_most_first(loop.counts)}"


def loop_rows(kernel: KernelReport, names: SourceNames) -> Iterator[Row]:
    """A row per loop."""
    mix = kernel.mix
    for loop in mix.loops if mix else ():
        yield {
            "source": names.of_line(loop.source),
            "loop": loop.depth,
            "instructions": loop.counts.total,
            "share_pct": 100 * loop.counts.total / mix.counts.total if mix else None,
            "instruction_mix": _most_first(loop.counts),
        }


def line_rows(kernel: KernelReport, names: SourceNames) -> Iterator[Row]:
    """A row per source line, those of the hottest loop first, then by line."""
    mix = kernel.mix
    lines = mix.lines if mix else ()
    for line in sorted(lines, key=lambda line: -line.in_hottest_loop):
        yield {
            "source": names.of_line(line.source),
            "loop": line.loop_depth,
            "instructions": line.counts.total,
            "hottest_loop_pct": _of_hottest(mix, line.in_hottest_loop),
            "instruction_mix": _most_first(line.counts),
        }


def pipeline(kernel: KernelReport, names: SourceNames) -> str:
    """The requested stages, the buffers allocated for them, and the copies in flight."""
    parts = []
    for count in dict.fromkeys(buffer.count for buffer in kernel.pipeline_buffers):
        # Not added up: buffers of different loops may share memory.
        held: Counter[str] = Counter()
        for buffer in kernel.pipeline_buffers:
            if buffer.count == count:
                held[buffer.variable or names.of_line(buffer.source)] += buffer.size_bytes
        sizes = (f"{name} ({units.size(size)})" for name, size in held.items())
        parts.append(f"{units.counted(count, 'buffer')} of {' and '.join(sizes)}")
    for wait in kernel.async_waits:
        if wait.kind in COPIES:
            waits = f"waits for {wait.in_flight - wait.left} of {wait.in_flight}"
            parts.append(f"{names.of_line(wait.source)} {waits} {wait.kind} groups in flight")
    stages = kernel.compiled.num_stages
    if stages and parts:
        parts.insert(0, f"num_stages={stages}")
    return " · ".join(parts)


def spilled(kernel: KernelReport, names: SourceNames) -> str:
    """The values with most spilled bytes."""
    parts = []
    for value in kernel.spilled_values[:_MOST_SPILLED]:
        again = value.in_hottest_loop
        loop = f", loaded {units.count(again)} × in the hottest loop" if again else ""
        size = units.size(value.store_bytes)
        parts.append(f"{size} of {named_line(kernel, value.source, names)}{loop}")
    more = len(kernel.spilled_values) - len(parts)
    return " · ".join([*parts, *([f"{more} more lines"] if more > 0 else [])])


def named_line(kernel: KernelReport, source: SourceLine | None, names: SourceNames) -> str:
    """A line with the variable that it computes: `total (matmul.py:84)`."""
    variable = kernel.variables.get(source) if source else None
    return f"{variable} ({names.of_line(source)})" if variable else names.of_line(source)


def spill_rows(kernel: KernelReport, names: SourceNames) -> Iterator[Row]:
    """A row per source line whose values are spilled."""
    for value in kernel.spilled_values:
        yield {
            "source": names.of_line(value.source),
            "variable": kernel.variables.get(value.source) if value.source else None,
            "stored_bytes": value.store_bytes,
            "loaded_bytes": value.load_bytes,
            "loads": value.loads,
            "in_hottest_loop": value.in_hottest_loop,
        }


def holder_rows(kernel: KernelReport, names: SourceNames) -> Iterator[Row]:
    """A row per source line that holds registers at the peak."""
    live = kernel.live_registers
    for source, count in live.holders if live else ():
        variable = kernel.variables.get(source) if source else None
        yield {"source": names.of_line(source), "variable": variable, "registers": count}


def wait_rows(kernel: KernelReport, names: SourceNames) -> Iterator[Row]:
    """A row per wait of the hottest loop."""
    for wait in kernel.async_waits:
        yield {
            "source": names.of_line(wait.source),
            "waits_for": wait.kind,
            "in_flight": wait.in_flight,
            "left": wait.left,
            "meanwhile": _most_first(ClassCounts(wait.meanwhile)) or "nothing",
        }


def conversion_rows(kernel: KernelReport, names: SourceNames) -> Iterator[Row]:
    """A row per layout conversion."""
    for each in kernel.layout_conversions:
        yield {
            "source": names.of_line(each.source),
            "variable": each.variable,
            "from_layout": each.from_layout,
            "to_layout": each.to_layout,
            "through": each.path,
            "size_bytes": each.size_bytes,
            "loop": each.loop_depth,
        }


def _of_hottest(mix: InstructionMix | None, count: int) -> float | None:
    loop = mix.hottest_loop if mix else None
    return 100 * count / loop.counts.total if loop and count else None


def _most_first(counts: ClassCounts) -> str:
    """Instruction classes with their counts, largest first: `fp32 170 · integer 48`."""
    classes = sorted(counts.by_class.items(), key=lambda item: -item[1])
    return " · ".join(f"{name} {units.count(number)}" for name, number in classes)

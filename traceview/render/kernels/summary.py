"""A kernel in words: how it was compiled, its figures, its instructions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from traceview.base import units
from traceview.kernels.inspect.kernel_report import KernelReport, line_name
from traceview.kernels.ptx.accesses import COPIES
from traceview.kernels.ptx.model import Argument, How, SourceLine
from traceview.render.kernels.names import SourceNames
from traceview.render.kernels.tables import most_first

_MOST_MIX = 8
_MOST_HOLDERS = 4
_FULL_PCT = 100.0
_MOST_SPILLED = 3
HOW: dict[How, str] = {
    "launched": "as launched",
    "declared": "as declared",
    "called": "with what a call in the source passes (no launch)",
    "guessed": "with guessed arguments (no launch, no signature)",
    "given": "as given",
}


def circumstances(kernel: KernelReport, among: Iterable[KernelReport] = ()) -> str:
    """The options of a kernel's compilation: launches, grid, warps, stages, constexprs.

    Other arguments are named if kernels of this name in `among` differ in them.
    """
    return " · ".join(_circumstances(kernel, among))


def variant(kernel: KernelReport, among: Iterable[KernelReport]) -> str:
    """What tells a kernel from the variants of it: its name, else how it alone was compiled."""
    family = [other for other in among if other.family == kernel.family]
    if len({other.short_name for other in family}) > 1:
        return shown_name(kernel, family)
    others = [set(_circumstances(other, family)) for other in family]
    own = [p for p in _circumstances(kernel, family) if not all(p in each for each in others)]
    return ", ".join(own) or kernel.short_name


def _circumstances(kernel: KernelReport, among: Iterable[KernelReport]) -> list[str]:
    compiled = kernel.compiled
    parts = [HOW[compiled.how]]
    if kernel.producer.described:
        parts.append(f"compiled by {kernel.producer.described}")
    if compiled.launches:
        parts.append(units.counted(compiled.launches, "launch", "launches"))
    if compiled.grid:
        parts.append("grid " + " × ".join(f"{size:,}" for size in compiled.grid))
    if compiled.block:
        x, y, z = compiled.block
        shown = (x, y, z) if z > 1 else (x, y) if y > 1 else (x,)
        sides = " × ".join(f"{size:,}" for size in shown)
        at = f" by {line_name(compiled.block_from)}" if compiled.block_from else ""
        parts.append(f"block {sides}{at}")
    elif compiled.num_warps:
        parts.append(units.counted(compiled.num_warps, "warp"))
    if compiled.num_stages:
        parts.append(units.counted(compiled.num_stages, "stage"))
    constants = [a for a in compiled.arguments if a.type == "constexpr"]
    parts += [f"{a.name}={a.value}" for a in constants if a.name not in compiled.guessed]
    guessed = [f"{a.name}={a.value}" for a in constants if a.name in compiled.guessed]
    parts += [f"guessed: {', '.join(guessed)}"] if guessed else []
    return [*parts, *_differing_arguments(kernel, among)]


def shown_name(kernel: KernelReport, among: Iterable[KernelReport]) -> str:
    """The short C++ name, or the whole one if another kernel has the same short name."""
    alike = {each.name for each in among if each.short_name == kernel.short_name}
    return (kernel.demangled_name or kernel.name) if len(alike) > 1 else kernel.short_name


def _differing_arguments(kernel: KernelReport, among: Iterable[KernelReport]) -> Iterator[str]:
    """The arguments that differ between variants of a kernel: `n=4100 (i32), x (*fp16:16)`.

    For an integer, the value is from the first launch.
    """
    variants = [other.compiled.arguments for other in among if other.name == kernel.name]
    seen: dict[str, set[Argument]] = defaultdict(set)
    for argument in (argument for variant in variants for argument in variant):
        seen[argument.name].add(argument)
    alike: dict[str, list[str]] = defaultdict(list)
    for argument in kernel.compiled.arguments:
        if argument.type != "constexpr" and len(seen[argument.name]) > 1:
            value = "" if argument.value is None else f"={argument.value}"
            types = {(each.type, each.divisible_by_16) for each in seen[argument.name]}
            if value or len(types) > 1:
                alike[_typed(argument) if len(types) > 1 else ""].append(argument.name + value)
    for type_, names in alike.items():
        yield f"{', '.join(names)} ({type_})" if type_ else ", ".join(names)


def _typed(argument: Argument) -> str:
    return f"{argument.type}:16" if argument.divisible_by_16 else argument.type


def figures(kernel: KernelReport) -> Iterator[tuple[str, str]]:
    """The figures of a kernel with their names, in reading order."""
    yield "registers", units.count(kernel.registers)
    yield "spills", units.size(kernel.spill_bytes)
    yield "shared", units.size(kernel.shared_memory_bytes)
    if kernel.occupancy:
        yield "occupancy", units.percent(kernel.occupancy.theoretical_occupancy_pct)
    yield "elements per thread", units.count(kernel.elements_per_thread)
    if kernel.waves is not None:
        on = f" on {units.counted(kernel.sms.count, 'SM')}" if kernel.sms else ""
        yield "waves", f"{units.count(kernel.waves)}{on}"


def limited(kernel: KernelReport) -> str:
    """Blocks per SM, and what limits them."""
    occupancy = kernel.occupancy
    if not occupancy:
        return ""
    blocks = units.counted(occupancy.blocks_per_sm, "block")
    return f"{blocks} per SM, limited by {' and '.join(occupancy.limiters)}"


def made_of(kernel: KernelReport) -> list[tuple[str, str]]:
    """Instructions by family, tensor-core operations, loops, registers, barriers and shuffles."""
    most = sorted(kernel.instruction_mix.items(), key=lambda item: -item[1])
    families = [f"{name} {units.count(number)}" for name, number in most[:_MOST_MIX]]
    rest = sum(number for _, number in most[_MOST_MIX:])
    families += [f"{units.count(rest)} more"] if rest else []
    tensor = (f"{units.count(n)} × {op}" for op, n in kernel.counted_tensor_ops.items())
    across = [(kernel.barriers, "barrier"), (kernel.shuffles, "shuffle")]
    names = SourceNames.of([kernel])
    texts = {
        "instructions": " · ".join(families),
        "tensor cores": " · ".join(tensor),
        "hottest loop": hottest_loop(kernel, names),
        "pipeline": pipeline(kernel, names),
        "spilled": spilled(kernel, names),
        "live registers": live(kernel),
        "synchronization": " · ".join(units.counted(n, name) for n, name in across if n),
    }
    return [(lead, text) for lead, text in texts.items() if text]


def hottest_loop(kernel: KernelReport, names: SourceNames) -> str:
    """The loop that likely takes most time, and its instructions; empty without a loop."""
    mix = kernel.mix
    loop = mix.hottest_loop if mix else None
    if mix is None or loop is None:
        return ""
    of_all = f"of {units.count(mix.counts.total)} {mix.level.upper()} instructions"
    share = f"{units.count(loop.counts.total)} {of_all}"
    place = f"{names.of_line(loop.source)}, " if loop.source else ""
    return f"{place}{share}, {most_first(loop.counts)}"


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


def live(kernel: KernelReport) -> str:
    """The peak of live registers and what holds them, if registers limit occupancy or spill."""
    registers, sass = kernel.live_registers, kernel.sass
    occupancy = kernel.occupancy
    is_full = occupancy is not None and occupancy.theoretical_occupancy_pct == _FULL_PCT
    limits = occupancy is not None and "registers" in occupancy.limiters and not is_full
    if not registers or not sass or not registers.counts or not (limits or kernel.spill_bytes):
        return ""
    if not any(line for line, _ in registers.holders):
        return units.count(registers.most)
    names = SourceNames.of([kernel])
    parts = [
        f"{count} by {named_line(kernel, line, names)}"
        for line, count in registers.holders[:_MOST_HOLDERS]
    ]
    rest = sum(count for _, count in registers.holders[_MOST_HOLDERS:])
    parts += [f"{rest} more"] if rest else []
    at = names.of_line(sass.instructions[registers.peak].source)
    return f"{registers.most} at {at}, written {' · '.join(parts)}"


def differences(kernel: KernelReport, names: SourceNames) -> list[str]:
    """The lines whose access widths differ between PTX and SASS, one sentence each."""
    return [
        f"{names.of_line(each.source)}: {each.kind} {each.change} from {each.ptx} in PTX to "
        f"{each.sass} in SASS"
        for each in kernel.differences
    ]

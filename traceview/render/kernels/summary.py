"""What a kernel is in words: how it came to be compiled, its figures, what it is made of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from traceview import units
from traceview.inspect.kernel_report import KernelReport
from traceview.ptx.model import Argument, How

_MOST_MIX = 8
HOW: dict[How, str] = {
    "launched": "as launched",
    "declared": "as declared",
    "guessed": "as guessed: no launch and no signature were given",
    "given": "as given",
}


def circumstances(kernel: KernelReport, among: Iterable[KernelReport] = ()) -> str:
    """The launch or what stands for it: grid, warps, stages, constexprs.

    Of other arguments those in which kernels of this name `among` those shown differ.
    """
    compiled = kernel.compiled
    said = [HOW[compiled.how]]
    if compiled.launches:
        said.append(units.counted(compiled.launches, "launch", "launches"))
    if compiled.grid:
        said.append("grid " + " × ".join(f"{size:,}" for size in compiled.grid))
    if compiled.num_warps:
        said.append(units.counted(compiled.num_warps, "warp"))
    if compiled.num_stages:
        said.append(units.counted(compiled.num_stages, "stage"))
    said += [f"{a.name}={a.value}" for a in compiled.arguments if a.type == "constexpr"]
    return " · ".join((*said, *_told_apart_by(kernel, among)))


def _told_apart_by(kernel: KernelReport, among: Iterable[KernelReport]) -> Iterator[str]:
    """The arguments that are not alike in all variants of a kernel: `n=4100 (i32), x (*fp16:16)`.

    The value of an integer is that of the first launch.
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
    yield "elements a thread", units.count(kernel.elements_per_thread)
    if kernel.waves is not None:
        on = f" on {kernel.sms.count:,} SMs" if kernel.sms else ""
        yield "waves", f"{kernel.waves:.2f}{on}"


def limited(kernel: KernelReport) -> str:
    """What the occupancy comes from: blocks on an SM, and what allows no more."""
    found = kernel.occupancy
    if not found:
        return ""
    blocks = units.counted(found.blocks_per_sm, "block")
    return f"{blocks} per SM, limited by {' and '.join(found.limiters)}"


def made_of(kernel: KernelReport) -> Iterator[tuple[str, str]]:
    """Instructions by family, tensor-core operations, and what goes between threads."""
    most = sorted(kernel.instruction_mix.items(), key=lambda item: -item[1])
    said = [f"{name} {units.count(number)}" for name, number in most[:_MOST_MIX]]
    rest = sum(number for _, number in most[_MOST_MIX:])
    said += [f"more {units.count(rest)}"] if rest else []
    if said:
        yield "instructions", " · ".join(said)
    tensor: Counter[str] = Counter()
    for op in kernel.tensor_ops:
        tensor[" ".join(filter(None, (op.operation, op.shape, *op.types)))] += op.count
    if tensor:
        yield "tensor cores", " · ".join(f"{units.count(n)} × {op}" for op, n in tensor.items())
    steps = [(kernel.barriers, "barrier"), (kernel.shuffles, "shuffle")]
    counted = [units.counted(number, name) for number, name in steps if number]
    if counted:
        yield "between threads", " · ".join(counted)

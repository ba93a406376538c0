"""What a change of the Triton version does to kernels, without running them: losses and gains.

Each later version is compared with the first one. A loss is the fraction of what the kernel had:
of the warps that an SM holds, of the bits that a load moves, of the bytes that are in flight.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from traceview.base import units
from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.comparison import ComparedVersion, Comparison, compare
from traceview.kernels.inspect.kernel_report import KernelReport
from traceview.kernels.inspect.matching import Matched
from traceview.kernels.inspect.recompilations import widths_text
from traceview.kernels.inspect.target_report import PtxReport, inspect
from traceview.kernels.inspect.triton_builds import (
    TritonBuild,
    builds,
    failures,
    identity,
    versions_of,
)
from traceview.kernels.ptx import cubin as cubin_file
from traceview.kernels.ptx.accesses import GENERATIONS, generation
from traceview.kernels.ptx.model import Compiled, SourceLine

LEAST = 0.1
"""The least fraction that counts as a loss or a gain.

Below it is what two schedules of the same code differ in: a block of sixteen, a scalar access
among ten wide ones.
"""
_LEAST_SPILL_BYTES = 32
_REGISTER_BYTES = 4
# Of the tensor cores' rate on an H100, mma.sync reaches 62 to 65 % (Luo et al., arXiv 2402.13499;
# 64.5 % on an H200, pipes.py), the CUDA cores a fifteenth (data sheet: 67 TFLOP/s in fp32, 989 in
# fp16).
_OLDER_LOSS, _NONE_LOSS = 0.37, 0.93

_MOVES = {"load": "loads", "async-copy": "loads", "store": "stores"}

Kind = Literal["rejected", "tensor cores", "occupancy", "spills", "width", "copies in flight"]


@record
class UpgradeChange:
    """One property of a kernel, as text before and after; `loss` is a fraction, below 0 a gain."""

    kind: Kind
    before: str
    after: str
    loss: float


@record
class KernelUpgrade:
    """What a version changes about one kernel for one architecture, compared with the first.

    `configuration` tells it from other variants of its name. `launches` are those of the script or
    the recording, `time_ns` is its time in the recording, None without one. `risk` is the largest
    loss, times the share of the recording's kernel time where that is known.
    """

    kernel: str
    configuration: str
    arch: str
    version: str
    changes: tuple[UpgradeChange, ...]
    launches: int
    time_ns: int | None
    risk: float

    @property
    def is_worse(self) -> bool:
        """Whether anything is lost."""
        return any(change.loss > 0 for change in self.changes)


@record
class UpgradeReport:
    """The kernels of a target under several versions of Triton, those at the greatest risk first.

    `kernels` counts the variants that were compared, `unchanged` those without a change, which are
    not listed. `rejected` are variants that no version compiles. `failures` say why kernels may be
    missing; times are those of the recording.
    """

    target: str
    versions: tuple[str, ...]
    archs: tuple[str, ...]
    kernels: int
    unchanged: int
    upgrades: tuple[KernelUpgrade, ...]
    rejected: tuple[KernelUpgrade, ...]
    failures: tuple[str, ...]

    @property
    def worse(self) -> tuple[KernelUpgrade, ...]:
        """The kernels that lose something."""
        return tuple(each for each in self.upgrades if each.is_worse)


def check_upgrade(
    target: str,
    versions: Sequence[str],
    archs: Sequence[str] = (),
    options: CompileOptions | None = None,
    *,
    note: Callable[[str], None] = lambda _: None,
    step: Callable[[str], None] = lambda _: None,
) -> UpgradeReport:
    """Compile the kernels of a target with several versions of Triton, and compare the code.

    Versions that are not there yet are downloaded. A single one is compared with the installed
    one. Raises InputError, and TraceviewError if the first version compiles none of the kernels.
    """
    labels = versions_of(versions)
    built = builds(target, labels, archs, options or CompileOptions(), note, step)
    lines = list(failures(built))
    upgrades: list[KernelUpgrade] = []
    rejected: list[KernelUpgrade] = []
    compared, changed = set[object](), set[object]()
    for arch in dict.fromkeys(build.arch for build in built):
        first, *others = [build for build in built if build.arch == arch]
        rejected += _rejected_by_all([first, *others])
        for other in others:
            step(f"Comparing Triton {first.version} and {other.version} for {arch}")
            found, missing = _compared(first, other)
            compared |= set(map(identity, first.kernels)) - set(map(identity, missing))
            changed |= {identity(kernel) for kernel, _ in found}
            upgrades += [upgrade for _, upgrade in found]
            if missing:
                names = ", ".join(dict.fromkeys(kernel.name[:80] for kernel in missing))
                count = units.counted(len(missing), "kernel is", "kernels are")
                lines.append(
                    f"{count} not compiled with Triton {other.version} for {arch}: {names}"
                )
    if not (compared or changed or rejected):
        raise InputError(f"{target} has no kernel to compare", "pass what compiles one")
    ranked = sorted(upgrades, key=lambda each: (-each.risk, -each.launches, each.kernel))
    archs = tuple(dict.fromkeys(build.arch for build in built))
    return UpgradeReport(
        target,
        labels,
        archs,
        len(compared | changed),
        len(compared - changed),
        tuple(ranked),
        tuple(rejected),
        tuple(lines),
    )


def _compared(
    first: TritonBuild, other: TritonBuild
) -> tuple[list[tuple[Compiled, KernelUpgrade]], list[Compiled]]:
    """The kernels that the other version changes, and those that it neither has nor rejects."""
    same = _same_code(first.kernels, other.kernels)
    left = [
        [k for k in build.kernels if k.variant not in variants]
        for build, variants in ((first, same), (other, set(same.values())))
    ]
    upgrades, missing = [], {kernel.variant: kernel for kernel in left[0]}
    for comparison in _comparisons(first, other, *left):
        kernel = comparison.kernels[0].compiled
        del missing[kernel.variant]
        if changes := tuple(_changes(comparison)):
            upgrades.append((kernel, _upgrade(kernel, changes, first, other)))
    for kernel, change in _fates([*missing.values()], left[1], first, other):
        upgrades.append((kernel, _upgrade(kernel, (change,), first, other)))
        missing.pop(kernel.variant, None)
    return upgrades, list(missing.values())


def _comparisons(
    first: TritonBuild, other: TritonBuild, one: Sequence[Compiled], two: Sequence[Compiled]
) -> tuple[Comparison, ...]:
    reports = [PtxReport("", tuple(inspect(k, sass=False) for k in side)) for side in (one, two)]
    labels = (first.version, other.version)
    try:
        return compare(list(map(ComparedVersion, labels, reports))).comparisons
    except InputError:
        return ()


def _fates(
    missing: Iterable[Compiled], new: Sequence[Compiled], first: TritonBuild, other: TritonBuild
) -> Iterator[tuple[Compiled, UpgradeChange]]:
    """The kernels that only one of two versions compiles, as the other one rejects them."""
    reasons = [{identity(r.kernel): r.reason for r in build.rejected} for build in (first, other)]
    for kernel in missing:
        if reason := reasons[1].get(identity(kernel)):
            yield kernel, UpgradeChange("rejected", "compiles", reason, 1.0)
    for kernel in new:
        if reason := reasons[0].get(identity(kernel)):
            yield kernel, UpgradeChange("rejected", reason, "compiles", -1.0)


def _same_code(
    first: Sequence[Compiled], other: Sequence[Compiled]
) -> dict[str | None, str | None]:
    """The variants that have the same machine code and shared memory under both versions."""
    by_code: dict[object, list[str | None]] = {}
    for kernel in other:
        by_code.setdefault(_code_key(kernel), []).append(kernel.variant)
    same = {}
    for kernel in first:
        if found := by_code.get(_code_key(kernel)):
            same[kernel.variant] = found.pop()
    return same


def _code_key(kernel: Compiled) -> object:
    code = cubin_file.machine_code(kernel.cubin, kernel.name) if kernel.cubin else kernel.ptx
    return identity(kernel), kernel.dynamic_shared_bytes, code


def _upgrade(
    kernel: Compiled, changes: tuple[UpgradeChange, ...], first: TritonBuild, other: TritonBuild
) -> KernelUpgrade:
    times = first.times_ns or {}
    time_ns, total_ns = times.get(kernel.variant or ""), sum(times.values())
    share = time_ns / total_ns if time_ns is not None and total_ns else 1.0
    most = max(change.loss for change in changes)
    return KernelUpgrade(
        kernel.name,
        _configuration(kernel, first.kernels),
        first.arch,
        other.version,
        tuple(sorted(changes, key=lambda change: -change.loss)),
        kernel.launches,
        time_ns,
        most * share,
    )


def _configuration(kernel: Compiled, all_kernels: Iterable[Compiled]) -> str:
    """What tells a variant from others of its name: `BLOCK=128, num_warps=8`."""
    others = [_properties(each) for each in all_kernels if each.name == kernel.name]
    own = _properties(kernel)
    counts = {name: Counter(each.get(name) for each in others) for name in own}
    differing = [name for name in own if len(counts[name]) > 1]
    return ", ".join(f"{name}={own[name]}" for name in differing)


def _properties(kernel: Compiled) -> dict[str, str]:
    values = {
        a.name: str(a.value) if a.type == "constexpr" else a.type + ":16" * a.divisible_by_16
        for a in kernel.arguments
    }
    return values | {"num_warps": str(kernel.num_warps), "num_stages": str(kernel.num_stages)}


def _rejected_by_all(every: Sequence[TritonBuild]) -> Iterator[KernelUpgrade]:
    """The kernels that no version compiles; a launched one that others compile is a change."""
    first, *others = every
    for each in first.rejected:
        same = identity(each.kernel)
        if all(any(identity(o.kernel) == same for o in b.rejected) for b in others):
            change = UpgradeChange("rejected", each.reason, each.reason, 0.0)
            everything = [*first.kernels, *(other.kernel for other in first.rejected)]
            text = _configuration(each.kernel, everything)
            yield KernelUpgrade(
                each.kernel.name, text, first.arch, first.version, (change,), 0, None, 0.0
            )


# What one version changes about one kernel.


def _changes(comparison: Comparison) -> Iterator[UpgradeChange]:
    before, after = comparison.kernels
    one, other = (generation(kernel.tensor_ops) for kernel in (before, after))
    lower = _OLDER_LOSS if min(one, other) else _NONE_LOSS
    loss = lower if other < one else -lower if other > one else 0.0
    found = (
        UpgradeChange("tensor cores", GENERATIONS[one].name, GENERATIONS[other].name, loss),
        _occupancy(before, after),
        _spills(before, after),
        *_widths(comparison),
        _in_flight(before, after),
    )
    return (change for change in found if change and abs(change.loss) >= LEAST)


def _fraction(before: float, after: float) -> float:
    """The fraction of `before` that is lost, at most 1; below 0, down to −1, for a gain."""
    largest = max(before, after)
    return (before - after) / largest if largest else 0.0


def _occupancy(before: KernelReport, after: KernelReport) -> UpgradeChange | None:
    one, other = before.occupancy, after.occupancy
    if one is None or other is None:
        return None
    loss = _fraction(one.active_warps, other.active_warps)
    limits = other.limiters if loss > 0 else one.limiters

    def text(kernel: KernelReport, blocks: int) -> str:
        per_sm = f"{units.counted(blocks, 'block')} per SM"
        if "registers" in limits:
            return f"{per_sm} at {kernel.registers} registers"
        if "shared memory" in limits:
            return f"{per_sm} at {units.size(kernel.shared_memory_bytes)} of shared memory"
        return per_sm

    texts = text(before, one.blocks_per_sm), text(after, other.blocks_per_sm)
    return UpgradeChange("occupancy", texts[0], texts[1], loss)


def _spills(before: KernelReport, after: KernelReport) -> UpgradeChange | None:
    """Spilled bytes, as the share of a thread's values that live in memory."""
    one, other = before.spill_bytes, after.spill_bytes
    # A tenth of what was spilled, however little of a thread's values it is, is traffic in loops.
    if one is None or other is None:
        return None
    if abs(other - one) < max(_LEAST_SPILL_BYTES, LEAST * max(one, other)):
        return None
    shares = [
        spilled / (spilled + _REGISTER_BYTES * (kernel.registers or 1))
        for spilled, kernel in ((one, before), (other, after))
    ]
    loss = math.copysign(max(abs(shares[1] - shares[0]), LEAST), other - one)
    texts = [f"{units.size(n)} spilled per thread" if n else "no spills" for n in (one, other)]
    return UpgradeChange("spills", texts[0], texts[1], loss)


def _widths(comparison: Comparison) -> Iterator[UpgradeChange]:
    """The mean width of the loads, and of the stores, of each line in global memory."""
    # A load that becomes an asynchronous copy, or stops to be one, stays a load.
    lines: dict[tuple[str, Matched[SourceLine]], tuple[Counter[int], Counter[int]]] = {}
    for place in comparison.moves:
        kind = _MOVES.get(place.kind)
        if place.space == "global" and kind and place.levels.get("ptx"):
            each = lines.setdefault((kind, place.sources), (Counter(), Counter()))
            for counts, side in zip(each, place.levels["ptx"], strict=True):
                counts.update(side.widths if side else {})
    for (kind, sources), (one, other) in lines.items():
        bits = [sum(width * number for width, number in c.items()) for c in (one, other)]
        # Else the compiler unrolls the loop, or names lines, in another way.
        if one and other and abs(_fraction(bits[0], bits[1])) < LEAST:
            source = next((source for source in reversed(sources) if source), None)
            where = f" at line {source.line}" if source else ""
            loss = _fraction(bits[0] / one.total(), bits[1] / other.total())
            texts = [f"{kind} of {widths_text(counts)}{where}" for counts in (one, other)]
            yield UpgradeChange("width", texts[0], texts[1], loss)


def _in_flight(before: KernelReport, after: KernelReport) -> UpgradeChange | None:
    """The bytes that the buffers of the pipelined loops hold."""
    one, other = (kernel.pipeline_buffers for kernel in (before, after))
    loss = _fraction(sum(b.size_bytes for b in one), sum(b.size_bytes for b in other))
    counts = [", ".join(str(buffer.count) for buffer in side) for side in (one, other)]
    texts = [f"stages {each}" if each else "no pipelined copies" for each in counts]
    return UpgradeChange("copies in flight", texts[0], texts[1], loss)

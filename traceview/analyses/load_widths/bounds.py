"""Access widths of each kernel with code, and a bound on the time that wider accesses can save.

Narrow accesses cost time only in memory-bound kernels. Time is claimed only for launches that ran
alone on the GPU for long enough, of code that shows how many bytes a thread moves: the measured
time beyond what memory, arithmetic and the wider accesses take at least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from traceview import units
from traceview.facts.code.gathered import LaunchedCode, gathered_code
from traceview.facts.operations.concurrency import shared_ns
from traceview.facts.operations.kernel_classes import KernelClass, classify
from traceview.facts.savings.gains import Gain
from traceview.facts.steps.warm_up import kernels_in_warm_up
from traceview.facts.work.peaks import Peaks, peaks
from traceview.records import record
from traceview.rules.kernels import of_kernels
from traceview.tables import Array, Integers, Table
from traceview.trace import Trace, fact
from traceview.vocabulary.amounts import WARP_THREADS

if TYPE_CHECKING:
    from traceview.inspect.launched_widths import MainWidth, RunningWidths

WIDE_BITS = 128
# Copies and GELU with 128 bits reach 87 to 89 % of the peak on an H200; nothing comes near 100.
NEAR_PEAK = 0.85
# 32 bits per thread reach 43 to 48 % there. A kernel far below that, for its width, waits for more
# than memory.
_LEAST_OF_PEAK = 0.2
_MOST_OVERLAP = 0.1
# Launch and tail take some microseconds, whatever the width.
_SHORTEST_NS = 10_000
# Sub-partitions of an SM, each of which issues one warp instruction per clock.
_ISSUES_PER_CLOCK = 4
_MOST_BYTES = 1 << 60
_TIME_COVERED = 0.995
WARM_UP_ALONE = "it ran only during warm-up"
Verdict = Literal["wide", "narrow", "near-peak", "unknown"]


@record
class TimedLaunches:
    """The launches after warm-up that ran alone on the GPU: their number, time and traffic.

    `blocks_least` is the smallest grid among them.
    """

    calls: int
    total_ns: int
    bytes_moved: int
    warps: float
    blocks_least: int


@record
class WidthBound:
    """One variant of a kernel: its widths, and a bound on its time with 128-bit accesses.

    `bits` is the narrow width that costs time, None without one. `timed` are the launches that the
    bound applies to, None without any; `bound_ns` is their least time, None where unknown. `why` is
    the reason why no time is claimed. Of several variants that share their launches only the first
    is `counted`.
    """

    code: LaunchedCode
    widths: RunningWidths
    bits: int | None
    verdict: Verdict
    why: str = ""
    timed: TimedLaunches | None = None
    peak_bytes_per_s: int | None = None
    bound_ns: int | None = None
    counted: bool = True
    gain: Gain = Gain(0, 0)

    @property
    def saved_ns(self) -> int:
        """The part of `at_stake_ns` that the program gains."""
        return self.gain.saved_ns

    @property
    def at_stake_ns(self) -> int:
        """The time that 128 bits can save at most; 0 where none is claimed."""
        if self.verdict != "narrow" or self.timed is None or self.bound_ns is None:
            return 0
        return max(0, self.timed.total_ns - self.bound_ns)

    @property
    def bytes_per_s(self) -> int | None:
        """The rate at which the timed launches request bytes."""
        if self.timed is None or not self.timed.total_ns:
            return None
        return min(int(self.timed.bytes_moved / self.timed.total_ns * 1e9), _MOST_BYTES)


@fact
def width_bounds(trace: Trace) -> tuple[WidthBound, ...]:
    """The bound of each variant that ran, longest first. Raises MissingTableError without code."""
    launched = [each for each in gathered_code(trace).launched if not _communicates(each)]
    if not launched:
        return ()
    # Modules that read code take long to import, and most traces have none.
    from traceview.inspect.launched_widths import MOST_DISASSEMBLED, running_widths

    few = min(_covering(launched), MOST_DISASSEMBLED)
    widths = running_widths([each.compiled for each in launched], few)
    pairs = list(zip(launched, widths, strict=True))
    seen: set[int] = set()
    bounds = []
    for code, known in pairs:
        twins = [w for other, w in pairs if code.alike and _share_launches(code, other)]
        first = seen.isdisjoint(map(id, code.runs))
        seen.update(map(id, code.runs))
        bounds.append(_bound(trace, code, known, twins, counted=first))
    return tuple(bounds)


def _communicates(code: LaunchedCode) -> bool:
    """Whether the kernel exchanges data between GPUs, so that the link determines its time."""
    return any(classify(run.name) is KernelClass.COMMUNICATION for run in code.runs)


def _covering(launched: Sequence[LaunchedCode]) -> int:
    """The number of longest kernels that together take nearly all the time."""
    spent = np.cumsum([float(each.total_ns) for each in launched])
    return int(np.searchsorted(spent, _TIME_COVERED * spent[-1])) + 1 if len(spent) else 0


def _share_launches(one: LaunchedCode, other: LaunchedCode) -> bool:
    return not {id(run) for run in one.runs}.isdisjoint(map(id, other.runs))


def _bound(
    trace: Trace,
    code: LaunchedCode,
    widths: RunningWidths,
    twins: Sequence[RunningWidths],
    *,
    counted: bool,
) -> WidthBound:
    known = peaks(trace)[code.device]
    bits = _narrow_bits(widths)
    timed = _timed_launches(trace, code, widths)
    peak = int(known["bandwidth"].value) if "bandwidth" in known else None
    verdict: Verdict = "wide" if bits is None else "unknown"
    bound = WidthBound(code, widths, bits, verdict, "", timed, peak, None, counted)
    only_warm_up = bool(kernels_in_warm_up(trace)[_rows(code)].all())
    why = WARM_UP_ALONE if only_warm_up else why_unknown(bound, twins, known)
    if why or timed is None or peak is None:
        return replace(bound, why=why if bits else "")
    bound = with_bound(bound, timed, peak, known)
    return replace(bound, gain=_gain(trace, bound, timed))


def _gain(trace: Trace, bound: WidthBound, timed: TimedLaunches) -> Gain:
    """What the program gains of `at_stake_ns` if each launch saves the same fraction."""
    if not bound.at_stake_ns:
        return Gain(0, 0)
    rows, fraction = _rows(bound.code), bound.at_stake_ns / max(timed.total_ns, 1)
    each_ns = np.ceil(trace.recorded("kernels").duration_ns[rows] * fraction).astype(np.int64)
    return of_kernels(trace, rows, each_ns).at_most(bound.at_stake_ns)


def _narrow_bits(widths: RunningWidths) -> int | None:
    """The width below 128 bits that moves most bytes; None where the code has no such finding."""
    bits = [main.bits for main in (widths.loads, widths.stores) if main and main.bits < WIDE_BITS]
    has_ptx = any(access.level == "ptx" for access in widths.accesses)
    # PTX has no finding on values that a whole block shares, or on unused lanes.
    costs_time = any(finding.severity != "low" for finding in widths.narrow) if has_ptx else True
    return min(bits) if bits and costs_time else None


def _timed_launches(
    trace: Trace, code: LaunchedCode, widths: RunningWidths
) -> TimedLaunches | None:
    """The timed launches; None if bytes per thread are unknown, or none ran alone on its GPU."""
    thread_bytes = widths.traffic.bytes_moved
    if not thread_bytes:
        return None
    kernels, beside, early = trace.recorded("kernels"), shared_ns(trace), kernels_in_warm_up(trace)
    calls, total_ns, threads_in_all, warps, least = 0, 0, 0.0, 0.0, 1 << 62
    for run in code.runs:
        took = kernels["end_ns"][run.rows] - kernels["start_ns"][run.rows]
        alone = run.rows[(beside[run.rows] <= _MOST_OVERLAP * took) & ~early[run.rows]]
        if not len(alone):
            continue
        blocks = _blocks(kernels, alone)
        calls += len(alone)
        total_ns += int((kernels["end_ns"][alone] - kernels["start_ns"][alone]).sum())
        threads_in_all += float(blocks.sum()) * run.threads
        warps += float(blocks.sum()) * -(-run.threads // WARP_THREADS)
        least = min(least, int(min(blocks.min(), _MOST_BYTES)))
    if not calls or not total_ns:
        return None
    moved = int(min(threads_in_all * thread_bytes, _MOST_BYTES))
    return TimedLaunches(calls, total_ns, moved, warps, least)


def _blocks(kernels: Table, rows: Array) -> Array:
    """Blocks of each launch, as floats, since a damaged trace may have any numbers."""
    result = np.ones(len(rows))
    for axis in "xyz":
        result *= np.maximum(kernels[f"grid_{axis}"][rows], 0)
    return result


def _rows(code: LaunchedCode) -> Integers:
    return np.concatenate([run.rows for run in code.runs])


def why_unknown(bound: WidthBound, twins: Sequence[RunningWidths], known: Peaks) -> str:
    """Why no bound on the time can be given; empty if one can.

    `twins` are the widths of the variants that share the launches.
    """
    traffic, timed = bound.widths.traffic, bound.timed
    sms = known["sms"].value if "sms" in known else 0
    reasons = {
        "variants of different widths share its launches": any(
            _compared(bound.widths) != _compared(twin) for twin in twins
        ),
        traffic.unknown: bool(traffic.unknown),
        "no thread moves data of its own": not traffic.bytes_moved,
        "its arithmetic is in loops of unknown trip counts": traffic.issue_slots is None,
        "it never ran alone on the GPU": timed is None,
        "the peak bandwidth of the GPU is not known": bound.peak_bytes_per_s is None,
        "it has fewer blocks than the GPU has SMs": timed and timed.blocks_least < sms,
        f"its calls take less than {units.duration(_SHORTEST_NS)}": timed
        and timed.total_ns < _SHORTEST_NS * timed.calls,
    }
    return next((why for why, holds in reasons.items() if holds), "")


def _compared(widths: RunningWidths) -> tuple[int | None, ...]:
    mains = (widths.loads, widths.stores)
    return (*(main.bits if main else None for main in mains), widths.traffic.bytes_moved)


def with_bound(bound: WidthBound, timed: TimedLaunches, peak: int, known: Peaks) -> WidthBound:
    """The bound and verdict of timed launches: what memory, arithmetic and wider accesses take.

    `peak` is the bandwidth in bytes per second.
    """
    by_memory = timed.bytes_moved / peak * 1e9
    if by_memory >= NEAR_PEAK * timed.total_ns:
        return replace(bound, verdict="near-peak", bound_ns=int(by_memory))
    if bound.bits is None:
        return replace(bound, bound_ns=int(by_memory))
    least = _LEAST_OF_PEAK * min(1.0, bound.bits / 32)
    if by_memory < least * timed.total_ns:
        return replace(bound, why=f"it reaches less than {100 * least:.0f} % of peak bandwidth")
    by_arithmetic = _arithmetic_ns(bound.widths, timed, known)
    # Time shrinks no more than the number of memory instructions.
    by_width = timed.total_ns * bound.bits / WIDE_BITS
    bound_ns = int(max(by_memory, by_arithmetic, by_width))
    if bound_ns >= NEAR_PEAK * timed.total_ns:
        return replace(bound, why="its arithmetic takes as long", bound_ns=bound_ns)
    return replace(bound, verdict="narrow", bound_ns=bound_ns)


def _arithmetic_ns(widths: RunningWidths, timed: TimedLaunches, known: Peaks) -> float:
    """The least time of the arithmetic; 0 where the clock of the GPU is unknown."""
    if "sms" not in known or "clock" not in known:
        return 0.0
    rate = _ISSUES_PER_CLOCK * known["sms"].value * known["clock"].value
    return (widths.traffic.issue_slots or 0) * timed.warps / rate * 1e9


def time_by_width(bounds: Sequence[WidthBound], what: Literal["loads", "stores"]) -> dict[int, int]:
    """Kernel time by the width of loads, or of stores; each launch counts once, by its widest."""
    widest: dict[int, tuple[int, int]] = {}
    for bound in bounds:
        main: MainWidth | None = getattr(bound.widths, what)
        for run in bound.code.runs if main else ():
            before, _ = widest.get(id(run), (0, 0))
            widest[id(run)] = (max(before, main.bits if main else 0), run.total_ns)
    spent: dict[int, int] = defaultdict(int)
    for bits, total_ns in widest.values():
        spent[bits] += total_ns
    return spent

"""For each kernel that ran and whose code is there: how wide it goes through memory, and what
wider accesses could win at most.

Narrow accesses cost time only where memory is what a kernel waits for. Time is claimed only for
launches that had the GPU to themselves and are long enough, of code that tells how many bytes a
thread moves; and only between what memory and arithmetic allow and what was measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from traceview import units
from traceview.facts.code.gathered import LaunchedCode, gathered_code
from traceview.facts.operations.concurrency import shared_ns
from traceview.facts.steps.warm_up import kernels_in_warm_up
from traceview.facts.work.peaks import Peaks, peaks
from traceview.hardware.limits import WARP_THREADS
from traceview.tables import Array, Integers, Table
from traceview.trace import Trace, fact

if TYPE_CHECKING:
    from traceview.inspect.launched_widths import MainWidth, RunningWidths

WIDE_BITS = 128
# Copies and GELU with 128 bits reach 87 to 89 % of the peak on an H200; nothing comes near 100.
AT_THE_ROOF = 0.85
# 32 bits a thread reach 43 to 48 % there. What moves far less, for its width, waits for more
# than memory.
_LEAST_OF_ROOF = 0.2
_SHARED_MOST = 0.1
# Starting and ending takes some microseconds, whatever the width.
_SHORTEST_NS = 10_000
# Sub-partitions of an SM, each of which issues an instruction of a warp in a clock.
_ISSUES_PER_CLOCK = 4
_MOST_BYTES = 1 << 60
_NEARLY_ALL = 0.995
SET_UP_ALONE = "it ran in set-up alone"


@dataclass(frozen=True)
class Judged:
    """The launches after set-up that had the GPU to themselves: their number, time and traffic."""

    calls: int
    total_ns: int
    bytes_moved: int
    warps: float
    blocks_least: int


@dataclass(frozen=True)
class WidthBound:
    """One variant of a kernel: its widths, and what they may cost.

    `bits` is the width to blame, None if none is. `bytes_moved` and `bound_ns` are of the launches
    in `judged`; None where they cannot be told. `verdict` is wide, narrow, at the roof or not
    told, `why` says in words why no time is claimed. Of several variants that share their launches
    only the first is `counted`.
    """

    code: LaunchedCode
    widths: RunningWidths
    bits: int | None
    verdict: str
    why: str = ""
    judged: Judged | None = None
    peak_bytes_per_s: int | None = None
    bound_ns: int | None = None
    counted: bool = True

    @property
    def at_stake_ns(self) -> int:
        """What 128 bits could win at most; 0 where nothing is claimed."""
        if self.verdict != "narrow" or self.judged is None or self.bound_ns is None:
            return 0
        return max(0, self.judged.total_ns - self.bound_ns)

    @property
    def bytes_per_s(self) -> int | None:
        """The rate at which the judged launches asked for bytes."""
        if self.judged is None or not self.judged.total_ns:
            return None
        return min(int(self.judged.bytes_moved / self.judged.total_ns * 1e9), _MOST_BYTES)


@fact
def width_bounds(trace: Trace) -> tuple[WidthBound, ...]:
    """One of each variant that ran, the longest first. Raises MissingTableError without code."""
    # What reads code takes long to import, and most traces hold none.
    from traceview.inspect.launched_widths import MOST_DISASSEMBLED, running_widths

    launched = gathered_code(trace).launched
    few = min(_covering(launched), MOST_DISASSEMBLED)
    widths = running_widths([each.compiled for each in launched], few)
    pairs = list(zip(launched, widths, strict=True))
    seen: set[int] = set()
    found = []
    for code, known in pairs:
        twins = [w for other, w in pairs if code.alike and _share_launches(code, other)]
        first = seen.isdisjoint(map(id, code.runs))
        seen.update(map(id, code.runs))
        found.append(_bound(trace, code, known, twins, counted=first))
    return tuple(found)


def _covering(launched: Sequence[LaunchedCode]) -> int:
    """How many of the longest have nearly all the time of all."""
    spent = np.cumsum([float(each.total_ns) for each in launched])
    return int(np.searchsorted(spent, _NEARLY_ALL * spent[-1])) + 1 if len(spent) else 0


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
    judged = _judged(trace, code, widths)
    peak = int(known["bandwidth"].value) if "bandwidth" in known else None
    told = WidthBound(
        code, widths, bits, "wide" if bits is None else "not told", "", judged, peak, None, counted
    )
    why = _untold(trace, told, twins, known)
    if why or judged is None or peak is None:
        return replace(told, why=why if bits else "")
    return _priced(told, judged, peak, known)


def _narrow_bits(widths: RunningWidths) -> int | None:
    """The width below 128 bits by which most is moved; None where the code gives no blame."""
    bits = [main.bits for main in (widths.loads, widths.stores) if main and main.bits < WIDE_BITS]
    has_ptx = any(access.level == "ptx" for access in widths.accesses)
    # Of a value that a whole block shares, or of lanes that nobody reads, PTX has no finding.
    blamed = any(finding.severity != "low" for finding in widths.narrow) if has_ptx else True
    return min(bits) if bits and blamed else None


def _judged(trace: Trace, code: LaunchedCode, widths: RunningWidths) -> Judged | None:
    """None where the code does not tell the bytes, or no launch was alone on its GPU."""
    a_thread = widths.traffic.bytes_moved
    if not a_thread:
        return None
    kernels, beside, early = trace.recorded("kernels"), shared_ns(trace), kernels_in_warm_up(trace)
    calls, total_ns, threads_in_all, warps, least = 0, 0, 0.0, 0.0, 1 << 62
    for run in code.runs:
        took = kernels["end_ns"][run.rows] - kernels["start_ns"][run.rows]
        alone = run.rows[(beside[run.rows] <= _SHARED_MOST * took) & ~early[run.rows]]
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
    moved = int(min(threads_in_all * a_thread, _MOST_BYTES))
    return Judged(calls, total_ns, moved, warps, least)


def _blocks(kernels: Table, rows: Array) -> Array:
    """Blocks of each launch; as floats, since a damaged trace may hold any numbers."""
    result = np.ones(len(rows))
    for axis in "xyz":
        result *= np.maximum(kernels[f"grid_{axis}"][rows], 0)
    return result


def _rows(code: LaunchedCode) -> Integers:
    return np.concatenate([run.rows for run in code.runs])


def _untold(trace: Trace, told: WidthBound, twins: Sequence[RunningWidths], known: Peaks) -> str:
    """Why nothing can be said of the time; empty if something can."""
    traffic = told.widths.traffic
    if kernels_in_warm_up(trace)[_rows(told.code)].all():
        return SET_UP_ALONE
    if any(_differ(told.widths, twin) for twin in twins):
        return "variants of other widths have the same launches"
    if traffic.unknown:
        return traffic.unknown
    if not traffic.bytes_moved:
        return "no thread moves data of its own"
    if traffic.issue_slots is None:
        return "it reckons in loops, whose turns the code does not tell"
    if told.judged is None:
        return "it never had the GPU to itself"
    if told.peak_bytes_per_s is None:
        return "the peak rate of the GPU's memory is not known"
    if "sms" in known and told.judged.blocks_least < known["sms"].value:
        return "it has fewer blocks than the GPU has SMs"
    if told.judged.total_ns < _SHORTEST_NS * told.judged.calls:
        return f"its calls take less than {units.duration(_SHORTEST_NS)}"
    return ""


def _differ(one: RunningWidths, other: RunningWidths) -> bool:
    return _compared(one) != _compared(other)


def _compared(widths: RunningWidths) -> tuple[int | None, ...]:
    mains = (widths.loads, widths.stores)
    return (*(main.bits if main else None for main in mains), widths.traffic.bytes_moved)


def _priced(told: WidthBound, judged: Judged, peak: int, known: Peaks) -> WidthBound:
    """Between what was measured and what memory, arithmetic and the wider access allow."""
    by_memory = judged.bytes_moved / peak * 1e9
    if by_memory >= AT_THE_ROOF * judged.total_ns:
        return replace(told, verdict="at the roof", bound_ns=int(by_memory))
    if told.bits is None:
        return replace(told, bound_ns=int(by_memory))
    least = _LEAST_OF_ROOF * min(1.0, told.bits / 32)
    if by_memory < least * judged.total_ns:
        return replace(told, why=f"it moves less than {100 * least:.0f} % of what memory could")
    by_arithmetic = _arithmetic_ns(told.widths, judged, known)
    # As many instructions of memory are saved, and no more.
    by_width = judged.total_ns * told.bits / WIDE_BITS
    bound = int(max(by_memory, by_arithmetic, by_width))
    if bound >= AT_THE_ROOF * judged.total_ns:
        return replace(told, why="its arithmetic takes as long", bound_ns=bound)
    return replace(told, verdict="narrow", bound_ns=bound)


def _arithmetic_ns(widths: RunningWidths, judged: Judged, known: Peaks) -> float:
    """The least time for the arithmetic; 0 where the GPU's clock is not known."""
    if "sms" not in known or "clock" not in known:
        return 0.0
    rate = _ISSUES_PER_CLOCK * known["sms"].value * known["clock"].value
    return (widths.traffic.issue_slots or 0) * judged.warps / rate * 1e9


def time_by_width(bounds: Sequence[WidthBound], what: Literal["loads", "stores"]) -> dict[int, int]:
    """Time of kernels by the width of their loads, or stores; each launch counts once."""
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

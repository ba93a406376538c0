"""Claims on kernels: which kernels, by name and GPU, and the time that each could take less."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypedDict

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle import gaps
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.savings import gains
from traceview.facts.savings.gains import Gain
from traceview.facts.steps.warm_up import steady_kernels
from traceview.facts.work.peaks import peaks
from traceview.findings import Edit, LostTime, Subject
from traceview.intervals import Intervals
from traceview.rules.engine import Claims, TimeClaim
from traceview.rules.gpus import gpu_subject
from traceview.tables import Array, Integers, Mask, RowNumbers, picked
from traceview.trace import Trace, fact
from traceview.units import Value

Names = str | Callable[[str], object]
"""Kernels by name: a regular expression that their demangled names match, or a test of a name."""
FACTOR_ERROR = 0.2
"""Error of what a rule says that kernels take less, beside that of the replay: in docs/accuracy.md
such forecasts differ from what was measured by 1 to 22 % of it."""
_LONGEST = 4000
"""Characters of a name that are tested: a hostile trace has names of any length."""
_NONE: Mapping[str, Value] = {}


def faster(
    names: Names, factor: float, since: float = 0.0, until: float = np.inf, least_ns: int = 0
) -> Claims:
    """Claims on kernels of which others take 1 ÷ `factor` of the time, on the GPU with most.

    They hold on GPUs of compute capability from `since` to below `until`, for calls of at least
    `least_ns`: shorter ones are bound by their launch and their tail.
    """

    def claims(trace: Trace) -> Iterator[TimeClaim]:
        chosen = steady(trace, named(trace, names))
        chosen = chosen[trace.recorded("kernels").duration_ns[chosen] >= least_ns]
        for device, rows in costliest_gpu(
            trace, chosen, lambda device: since <= capability(trace, device) < until
        ):
            duration_ns = trace.recorded("kernels").duration_ns[rows]
            less_ns = np.ceil(duration_ns * (1 - 1 / factor)).astype(np.int64)
            yield kernel_claim(trace, device, rows, {"speedup_factor": factor}, less_ns)

    return claims


def named(trace: Trace, names: Names) -> Mask:
    """True for the kernels of these names; each distinct name is tested once."""
    texts = trace.recorded("kernels").texts("name")
    test = re.compile(names, re.DOTALL).search if isinstance(names, str) else names
    codes = [code for code, name in _distinct_names(trace) if test(name)]
    if not codes:
        return np.zeros(len(texts), bool)
    matches = np.zeros(len(texts.values) + 1, bool)
    matches[codes] = True
    result: Mask = picked(matches, texts.codes)
    return result


@fact
def _distinct_names(trace: Trace) -> list[tuple[int, str]]:
    """The names of kernels that ran, each with its code."""
    names = trace.recorded("kernels").texts("name")
    used = groups.different(names.codes[names.codes >= 0]).tolist()
    return [(code, str(names.values[code])[:_LONGEST]) for code in used]


def steady(trace: Trace, chosen: Mask) -> RowNumbers:
    """Rows of the chosen kernels that are selected and not of warm-up."""
    rows = np.flatnonzero(chosen).astype(np.int32)
    return rows[steady_kernels(trace)[rows]] if len(rows) else rows


def capability(trace: Trace, device: int) -> float:
    """The compute capability of a GPU, a row of devices; -1 where it is unknown."""
    known = peaks(trace)[device]
    return known["capability"].value if "capability" in known else -1.0


def by_gpu(trace: Trace, rows: RowNumbers) -> dict[int, RowNumbers]:
    """These kernels by GPU, a row of devices."""
    devices = trace.recorded("kernels")["device"][rows]
    return {device: rows[own] for device, own in groups.rows_of(devices).items()}


def costliest_gpu(
    trace: Trace, rows: RowNumbers, fits: Callable[[int], bool] | None = None
) -> Iterator[tuple[int, RowNumbers]]:
    """The fitting GPU on which these kernels take most time, and those on it."""
    duration_ns = trace.recorded("kernels").duration_ns
    own = {device: of for device, of in by_gpu(trace, rows).items() if not fits or fits(device)}
    if own:
        yield max(own.items(), key=lambda each: int(duration_ns[each[1]].sum()))


@fact
def steady_ns(trace: Trace) -> Integers:
    """Time of the steady kernels of each GPU."""
    kernels = trace.recorded("kernels")
    own = np.where(steady_kernels(trace), kernels.duration_ns, 0)
    return groups.added(kernels["device"], own, len(trace.devices))


def kernel_claim(
    trace: Trace,
    device: int,
    rows: RowNumbers,
    values: Mapping[str, Value] = _NONE,
    less_ns: Integers | None = None,
    gaining: RowNumbers | None = None,
) -> TimeClaim:
    """A claim on kernels of a GPU, named by the longest call, of which each takes `less_ns` less.

    Without `less_ns` they go, with their launches. `gaining` are the rows of `less_ns` where more
    kernels gain than the claim is about. Sentences may name `kernels`, their number, `total_ns`,
    their time, and `total_pct`, its share of all kernels' of that GPU after warm-up.
    """
    duration_ns = trace.recorded("kernels").duration_ns[rows]
    name = str(trace.recorded("kernels").texts("name")[rows[np.argmax(duration_ns)]])
    gains = rows if gaining is None else gaining
    gain = of_kernels(trace, gains, less_ns)
    return TimeClaim(
        Subject("kernel", name),
        {**values, "saved_ns": gain.saved_ns},
        "kernels",
        {"name": name},
        **gained(gain),
        span_ns=gaps.steady_spans_ns(trace).get(device, 0),
        figures={
            "kernels": len(rows),
            "total_ns": int(duration_ns.sum()),
            "total_pct": 100 * int(duration_ns.sum()) / max(int(steady_ns(trace)[device]), 1),
        },
    )


def of_kernels(trace: Trace, rows: Array, less_ns: Integers | None = None) -> Gain:
    """The gain if these kernels take so much less; by default, if they and their launches go."""
    gain = gains.of_operations(trace, kernel_operations(trace)[rows], less_ns)
    if gain.error_ns is None or less_ns is None:
        return gain
    return replace(gain, error_ns=round(np.hypot(gain.error_ns, FACTOR_ERROR * gain.saved_ns)))


class _Gained(TypedDict):
    saved_ns: int
    lost_ns: int | None
    edit: Edit | None
    error_ns: int | None


def gained(gain: Gain) -> _Gained:
    """The fields of a claim that a gain fills."""
    lost_ns = None if gain.edit is None else gain.own_ns
    return _Gained(saved_ns=gain.saved_ns, lost_ns=lost_ns, edit=gain.edit, error_ns=gain.error_ns)


def class_claim(
    trace: Trace,
    device: int,
    rows: RowNumbers,
    values: Mapping[str, Value] = _NONE,
    less_ns: Integers | None = None,
) -> TimeClaim:
    """As `kernel_claim`, on a GPU and the class of kernels that takes most of the time."""
    kernels = trace.recorded("kernels")
    kind = np.bincount(kernel_classes(trace)[rows], kernels.duration_ns[rows]).argmax()
    when = intervals.union(kernels["start_ns"][rows], kernels["end_ns"][rows])
    return replace(
        kernel_claim(trace, device, rows, values, less_ns),
        subject=gpu_subject(trace, device),
        table="classes",
        row={**gpu_cells(trace, device), "class": KernelClass(int(kind)).label},
        work=LostTime(device, when),
    )


def whole_claim(
    trace: Trace,
    device: int,
    rows: RowNumbers,
    values: Mapping[str, Value],
    when: Intervals | None = None,
) -> TimeClaim:
    """As `class_claim`, of kernels that are saved whole, their launches and gaps too.

    `when` is the time that they take, gaps included, where that is more than theirs: the most that
    is saved where nothing can be replayed.
    """
    claim = class_claim(trace, device, rows, values)
    work = claim.work if when is None else LostTime(device, when)
    if claim.edit is not None:
        return replace(claim, values=values, lost_ns=None, work=work)
    saved_ns = work.time.total() if work else 0
    return replace(claim, values=values, saved_ns=saved_ns, work=work)

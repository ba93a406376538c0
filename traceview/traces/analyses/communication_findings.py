"""Collectives paired over the GPUs of a recording, and findings on their exposed time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import LOW, Clause, LostTime, Severity, severity_of
from traceview.base.groups import Groups
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Integers, Mask
from traceview.base.units import Value
from traceview.traces.analyses.wording import flush
from traceview.traces.facts import collective_alignment, copies, messages, operations, savings
from traceview.traces.facts.collectives import (
    MatchedRows,
    Transfers,
    ends_together,
    matched_rows,
    transfers,
    waits_of,
)
from traceview.traces.facts.idle.first_calls import series
from traceview.traces.facts.idle.gaps import gaps, steady_spans_ns, unknown_idle
from traceview.traces.facts.savings import Gain
from traceview.traces.facts.steps.steps import steady_operations, step_of_operations
from traceview.traces.rules import FindingRule, TimeClaim, gained, gpu_name, gpu_subject
from traceview.traces.trace import Trace, fact


@record
class Waiting:
    """Waits in collectives, one entry per transfer.

    `wait_ns` is the wait for the last GPU to arrive, −1 for an unpaired transfer; `late_ns` the
    longest wait of another GPU for this one, 0 unless it arrived last. `extra_work_ns` and
    `extra_idle_ns` are how much longer than the mean of the others a GPU that arrived last was
    busy, and idle, since its previous collective. `communicator` is its number, −1 for none.
    """

    wait_ns: Integers
    late_ns: Integers
    extra_work_ns: Integers
    extra_idle_ns: Integers
    communicator: Integers
    devices: tuple[tuple[int, ...], ...]


@fact
def waiting(trace: Trace) -> Waiting:
    """Waits of the collectives of the selected work."""
    moved = transfers(trace)
    streams = communicators(trace, moved)
    late, work, idle = (np.zeros(len(moved), np.int64) for _ in range(3))
    wait, group_of = (np.full(len(moved), -1, np.int64) for _ in range(2))
    result = Waiting(wait, late, work, idle, group_of, tuple(each.members for each in streams))
    # Union of all other operations of each device that takes part in transfers.
    ops = operations.operations(trace)
    other = np.ones(len(ops), bool)
    other[moved.operation] = False
    busy = {
        device: intervals.covered(ops, other & (ops.device == device))
        for device in groups.different(moved.device).tolist()
    }
    for number, each in enumerate(streams):
        result.communicator[each.rows[each.rows >= 0]] = number
        _fill(result, moved, each, busy)
    return result


def communicators(trace: Trace, moved: Transfers) -> tuple[MatchedRows, ...]:
    """Streams of different GPUs whose collectives belong together; `rows` are rows of transfers."""
    rows = np.flatnonzero(moved.is_collective)
    if not len(rows):
        return ()
    times = collective_alignment.CollectiveTimes(
        member=moved.device[rows],
        lane=moved.stream[rows],
        start_ns=moved.start_ns[rows],
        end_ns=moved.end_ns[rows],
        kind=moved.kind[rows],
        is_message=np.array([kind == messages.SEND_RECEIVE for kind in moved.kinds])[
            moved.kind[rows]
        ],
        direction=moved.sends[rows].astype(np.int64) - moved.receives[rows],
        bytes=np.full(len(rows), -1, np.int64),
        communicator=moved.communicator[rows],
        step=np.full(len(rows), -1, np.int64),
        clock=operations.device_hosts(trace),
    )
    matched = matched_rows(times)
    return tuple(
        replace(each, rows=np.where(each.rows >= 0, rows[each.rows], -1)) for each in matched
    )


def _fill(result: Waiting, moved: Transfers, of: MatchedRows, busy: dict[int, Intervals]) -> None:
    """Write the waits of the collectives of one communicator into the arrays of the result."""
    rows, there = of.rows, of.rows >= 0
    together = np.ones(rows.shape[1], bool)
    if of.same_clock:
        together = ends_together(moved.end_ns[rows], there)
    waits = waits_of(moved.duration_ns[rows], there, together)
    known = waits.last >= 0
    rows, there, wait = rows[:, known], there[:, known], waits.wait_ns[:, known]
    if not rows.size:
        return
    result.wait_ns[rows[there]] = wait[there]
    last, at = waits.last[known], np.arange(rows.shape[1])
    late = rows[last, at]
    result.late_ns[late] = waits.late_ns[known]
    devices = of.members
    work, idle = (np.zeros(rows.shape, np.int64) for _ in range(2))
    for place, device in enumerate(devices):
        own = rows[place, there[place]]
        start = moved.start_ns[own]
        before = np.concatenate((start[:1], moved.end_ns[own][:-1]))
        before = np.minimum(before, start)
        spent = intervals.overlap(busy[device], before, start)
        work[place, there[place]] = spent
        idle[place, there[place]] = start - before - spent
    others = np.maximum(there.sum(axis=0) - 1, 1)
    for values, extra in ((work, result.extra_work_ns), (idle, result.extra_idle_ns)):
        mean = (values.sum(axis=0) - values[last, at]) // others
        extra[late] = values[last, at] - mean


# Finding of communication: time that compute does not hide, and the GPU that arrives last.
#
# Of ranks that are not in the recording, the fastest equal collective tells. It is the one of a
# kind and size that waited least: the excess time of the others is waiting for ranks that arrive
# later, or slowdown by concurrent transfers, and the recordings of the other ranks tell which.
# Where sizes are unknown, collectives at the same place of each step are taken to be equal.

_LEAST_EQUAL = 4
_RANK_FILE = re.compile(r"\.rank\d+\.")


_OVERLAP = (
    "Overlap it with compute: start each transfer as soon as its data is ready, on a stream of its "
    "own, in fewer and larger pieces. Or exchange fewer bytes."
)
_LARGER = (
    "Exchange more per call, as small messages use little of the link: larger buckets (of "
    "DistributedDataParallel: bucket_cap_mb), or one call for several tensors."
)
_AND_OVERLAP = " And overlap it with compute."
_LITTLE_BESIDE = " Without it, other kernels run for {compute_ns}: overlap saves no more than that."
_NO_OTHER = " No other work is left to overlap it with."
_LEAST_BESIDE = (
    " Without it, other kernels run for {compute_ns}: there is next to nothing to overlap it with."
)
_FEWER = "Exchange fewer bytes (a narrower type, or less often), in fewer and larger calls."
_BY_KIND = {
    "dispatch": " Alternate two micro-batches: one computes while the other is dispatched.",
    "combine": " Alternate two micro-batches: one computes while the other is combined.",
}
"""Follows the remedy by overlap, by the kind with most exposed time."""
_OF_FSDP = (
    " FSDP gathers the next unit early with forward_prefetch=True, or with "
    "set_modules_to_forward_prefetch."
)
_FSDP = re.compile(r"\bfsdp::|FullyShardedDataParallel|/torch/distributed/fsdp/", re.IGNORECASE)
"""Names of ranges and files of frames that FSDP alone has; others gather, too."""
_SEVERAL = "Record several steps after a warm-up: a single pass may wait for a rank's start. "
_LESS_WORK = "Give {late_gpu} less work per step, or the other GPUs more."
_LATE_IDLE = (
    "Look at why {late_gpu} is idle before it communicates (gpu-idle): the other GPUs wait for it."
)
# At 1 MiB two H200 reached a quarter of the bandwidth of 256 MiB (tests/data/collectives).
_SMALL_BYTES = 1 << 20
_WORTH_NAMING_FRACTION = 0.1
_MOSTLY = 0.5
_AS_LONG = 1.01


def _exposed(trace: Trace) -> Iterator[TimeClaim]:
    """The GPU with most exposed communication after warm-up."""
    moved, waits = transfers(trace), waiting(trace)
    steady = np.flatnonzero(moved.steady)
    if not len(steady):
        return
    by_device = groups.rows_of(moved.device[steady])
    shares = {device: _exposure(trace, moved, steady[own]) for device, own in by_device.items()}
    device = max(shares, key=lambda each: (shares[each][1], -each))
    rows, span_ns = steady[by_device[device]], steady_spans_ns(trace).get(device, 0)
    communication_ns, exposed_ns = sum(shares[device]), min(shares[device][1], span_ns)
    by_kind = groups.group(moved.kind[rows])
    start, end = moved.start_ns[rows], moved.end_ns[rows]
    of_kind = copies.exposure(trace, moved.device[rows], start, end, by_kind).exposed_ns
    most = int(np.argmax(of_kind))
    kind = int(moved.kind[rows[by_kind.first[most]]])
    absent = beyond_fastest(trace, moved, waits, rows)
    free_ns = _compute_ns(trace, device) - shares[device][0]
    said, part, may_overlap = "", 1.0, free_ns >= LOW * span_ns
    values, remedy = _late(trace, moved, waits, rows, exposed_ns), _OVERLAP
    waits_mostly = bool(values) and int(values["wait_ns"] or 0) >= _MOSTLY * exposed_ns
    # The time of the fastest calls may be hidden or exposed; any other exposed time is waiting.
    beyond_ns = exposed_ns - (int(moved.duration_ns[rows].sum()) - absent.total_ns)
    # Compute that was lost may have hidden it, and other GPUs may have taken part.
    lost = device in unknown_idle(trace)
    if lost:
        values, remedy, waits_mostly = {}, flush(trace), False
    elif not values and beyond_ns >= _MOSTLY * exposed_ns:
        values, remedy = {"beyond_fastest_ns": beyond_ns}, how_to_read_all(trace)
    elif not waits_mostly:
        message = _message(moved, waits, absent, rows[moved.kind[rows] == kind])
        small = bool(message) and int(message["message_bytes"] or 0) < _SMALL_BYTES
        of_fsdp = moved.kinds[kind] == "all-gather" and _uses_fsdp(trace)
        overlap = _OVERLAP + (_OF_FSDP if of_fsdp else _BY_KIND.get(moved.kinds[kind], ""))
        larger = _LARGER + _AND_OVERLAP * may_overlap
        values, remedy = {**message, **values}, larger if small else overlap
        if not small and free_ns < exposed_ns:
            # Overlap hides communication behind other work, and no more than there is.
            part = free_ns / exposed_ns if may_overlap else 1.0
            values |= {"compute_ns": free_ns} if free_ns > 0 else {}
            said = _LITTLE_BESIDE if may_overlap else _LEAST_BESIDE if free_ns > 0 else _NO_OTHER
            remedy = remedy if may_overlap else _FEWER
    # Only the GPU that the others wait for can save what they wait.
    beyond = "beyond_fastest_ns" in values
    single = beyond and not series(trace)
    hidden = Gain(0, 0) if single else Gain(exposed_ns, exposed_ns)
    if not waits_mostly and not beyond:
        work = moved.operation[steady]
        less_ns = np.round(operations.operations(trace).duration_ns[work] * part)
        beside = savings.faster(less_ns.astype(np.int64))
        hidden = savings.of_operations(trace, work, beside, round(exposed_ns * part))
    gain, nothing_beside = gained(hidden), said in (_LEAST_BESIDE, _NO_OTHER)
    gain["lost_ns"] = hidden.own_ns
    if nothing_beside:
        # How much shorter fewer bytes make it is not known.
        gain["edit"] = gain["error_ns"] = None
    severity: Severity | None = None
    if single:
        severity, remedy = severity_of(exposed_ns, span_ns), f"{_SEVERAL}{remedy}"
        severity = "medium" if severity == "high" else severity
    if waits_mostly:
        remedy = _LESS_WORK if values["late_cause"] == "gpu-work" else _LATE_IDLE
    idles = waits_mostly and values["late_cause"] == "gpu-idle"
    longest = rows[np.argmax(moved.duration_ns[rows])]
    alone = communication_ns <= _AS_LONG * exposed_ns
    works = values.get("late_cause") == "gpu-work"
    yield TimeClaim(
        gpu_subject(trace, device),
        {
            "gpu": gpu_name(trace, device),
            "exposed_ns": exposed_ns,
            "communication_ns": communication_ns,
            "kind": moved.kinds[kind],
            "kind_exposed_ns": int(of_kind[most]),
            "calls": int(groups.count(by_kind)[most]),
            **values,
        },
        "ranks",
        {"rank": int(np.searchsorted(groups.different(moved.device), device))},
        **gain,
        span_ns=span_ns,
        window=(int(moved.start_ns[longest]), int(moved.end_ns[longest])),
        work=LostTime(device, intervals.union(start, end)),
        # What is said of that idle time itself is the remedy, and goes before this.
        lost=_lost_by(trace, str(values["late_gpu"]), start, end) if idles else None,
        general=idles,
        remedy=remedy,
        said=(said,) if said else (),
        severity="info" if lost else severity,
        at_most="medium" if nothing_beside else "high",
        words={
            "alone": "{exposed_ns}" if alone else "",
            "in_all": "" if alone else "{communication_ns}",
            "alike": "of the same size" if absent.by_size else "at the same place of a step",
            "does": f"{'works' if works else 'is idle'} longer in between",
        },
    )


def _compute_ns(trace: Trace, device: int) -> int:
    """The steady time in which a GPU computes."""
    ops, computes = operations.operations(trace), copies.compute_time(trace)
    steady = intervals.covered(ops, steady_operations(trace) & (ops.device == device))
    return intervals.intersection(computes.get(device, intervals.EMPTY), steady).total()


def _lost_by(trace: Trace, gpu: str, start: Integers, end: Integers) -> LostTime:
    """The time of these transfers in which the GPU that they wait for was idle."""
    device = next(row for row in steady_spans_ns(trace) if gpu_name(trace, row) == gpu)
    every = gaps(trace)
    idle = intervals.covered(every, every.device == device)
    return LostTime(device, intervals.intersection(idle, intervals.union(start, end)))


def _uses_fsdp(trace: Trace) -> bool:
    """Whether a range or a stack of the recording is FSDP's."""
    columns = (("ranges", "name"), ("python_frames", "file"))
    texts = (trace.recorded(table).texts(column) for table, column in columns)
    return any(each.matching(_FSDP.search).any() for each in texts)


def _exposure(trace: Trace, moved: Transfers, rows: Integers) -> tuple[int, int]:
    """Time of these transfers of one GPU that compute hides, and that no compute hides."""
    together = Groups(np.zeros(len(rows), np.int64), np.zeros(1, np.int64))
    start, end = moved.start_ns[rows], moved.end_ns[rows]
    whole = copies.exposure(trace, moved.device[rows], start, end, together)
    return int(whole.hidden_ns[0]), int(whole.exposed_ns[0])


def _message(
    moved: Transfers, waits: Waiting, absent: BeyondFastest, rows: Integers
) -> dict[str, Value]:
    """Median size of transfers of one kind, and their bus bandwidth; empty where unknown.

    Bandwidth leaves out the time that they waited, or took beyond the fastest equal transfer.
    """
    waited = np.maximum(waits.wait_ns, 0)
    waited[absent.rows] = absent.beyond_ns
    time_ns = int((moved.duration_ns[rows] - waited[rows]).sum())
    if (moved.bus_bytes[rows] < 0).any() or time_ns <= 0:
        return {}
    return {
        "message_bytes": int(np.median(moved.bytes[rows])),
        "bus_bytes_per_s": round(int(moved.bus_bytes[rows].sum()) * 1e9 / time_ns),
    }


def _late(
    trace: Trace, moved: Transfers, waits: Waiting, rows: Integers, exposed_ns: int
) -> dict[str, Value]:
    """The GPU that these transfers wait for most; empty below a tenth of the exposed time."""
    wait_ns = int(np.maximum(waits.wait_ns[rows], 0).sum())
    others: Mask = (moved.device != moved.device[rows[0]]) & moved.steady & (waits.late_ns > 0)
    if wait_ns < _WORTH_NAMING_FRACTION * exposed_ns or not others.any():
        return {}
    by = groups.group(moved.device[others])
    last = int(np.argmax(groups.sums(by, waits.late_ns[others])))
    late = int(moved.device[np.flatnonzero(others)[by.first[last]]])
    return {
        "wait_ns": min(wait_ns, exposed_ns),
        "late_gpu": gpu_name(trace, late),
        "late_cause": cause_of(waits, others & (moved.device == late)),
    }


def cause_of(waits: Waiting, own: Mask) -> str:
    """Whether a GPU arrives last because it works longer than the others, or is idle longer."""
    work, idle = waits.extra_work_ns[own].sum(), waits.extra_idle_ns[own].sum()
    return "gpu-work" if work >= idle else "gpu-idle"


EXPOSED = FindingRule(
    _exposed,
    "{gpu} communicates for {alone}[{in_all}, {exposed_ns} of it] without computing, most of it in "
    "{kind} ({kind_exposed_ns} in {calls:call}).",
    clauses=(
        Clause(
            " {beyond_fastest_ns} of it is more than the fastest calls {alike} take: most likely "
            "waiting for ranks that this recording does not hold."
        ),
        Clause(" Each moves {message_bytes} (median), at {bus_bytes_per_s}."),
        Clause(" {wait_ns} of it waits for {late_gpu}, which {does}."),
    ),
)


@record
class BeyondFastest:
    """Collectives whose other ranks are not recorded: `rows` of transfers.

    `beyond_ns` is the time of each beyond the fastest equal collective, 0 where fewer than four are
    equal. `by_size` is False where not all sizes are known.
    """

    rows: Integers
    beyond_ns: Integers
    by_size: bool

    @property
    def total_ns(self) -> int:
        return int(self.beyond_ns.sum())


def beyond_fastest(trace: Trace, moved: Transfers, waits: Waiting, rows: Integers) -> BeyondFastest:
    """Transfers of `rows` that no other recorded rank shares, against the fastest equal one."""
    alone = rows[moved.is_collective[rows] & (waits.wait_ns[rows] < 0) & (moved.ranks[rows] != 1)]
    if not len(alone):
        return BeyondFastest(alone, np.zeros(0, np.int64), True)
    number = np.unique(moved.communicator[alone], return_inverse=True)[1].astype(np.int64)
    size, step = moved.bytes[alone], step_of_operations(trace)[moved.operation[alone]]
    unknown = size < 0
    in_step = groups.group(moved.kind[alone], number, np.where(unknown, step, 0))
    place = np.where(unknown, _place(in_step), 0)
    of_step = np.where(unknown, groups.count(in_step)[in_step.ids], 0)
    size = np.unique(size, return_inverse=True)[1].astype(np.int64)
    by = groups.group(moved.kind[alone], number, size, of_step, place)
    duration = moved.duration_ns[alone]
    fastest = np.full(len(by.first), np.iinfo(np.int64).max)
    np.minimum.at(fastest, by.ids, duration)
    enough = (groups.count(by)[by.ids] >= _LEAST_EQUAL) & ~(unknown & (step < 0))
    beyond_ns = np.where(enough, duration - fastest[by.ids], 0)
    return BeyondFastest(alone, beyond_ns, not unknown.any())


def _place(by: Groups) -> Integers:
    """The number of rows of the same group before each row."""
    order = np.argsort(by.ids, kind="stable")
    result = np.empty(len(order), np.int64)
    result[order] = np.arange(len(order)) - np.searchsorted(by.ids[order], by.ids[order])
    return result


def how_to_read_all(trace: Trace) -> str:
    """The remedy that shows the other ranks."""
    name = trace.path.rpartition("/")[2]
    if _RANK_FILE.search(name):
        pattern = _RANK_FILE.sub(".rank*.", name)
        return f"Read all ranks together: traceview report {pattern}"
    return (
        "Record every rank (traceview record under torchrun, or with --nproc) and read them "
        "together: traceview report FILE FILE …"
    )

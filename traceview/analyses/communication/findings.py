"""Finding of communication: time that compute does not hide, and the GPU that arrives last.

Of ranks that are not in the recording, the fastest equal collective tells. It is the one of a kind
and size that waited least: the excess time of the others is waiting for ranks that arrive later, or
slowdown by concurrent transfers, and the recordings of the other ranks tell which. Where sizes are
unknown, collectives at the same place of each step are taken to be equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.analyses.communication.pairing import Waiting, waiting
from traceview.facts.collectives.transfers import Transfers, transfers
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.facts.operations.exposure import exposure
from traceview.facts.savings import gains
from traceview.facts.savings.gains import Gain
from traceview.facts.steps.steps import step_of_operations
from traceview.findings import LostTime
from traceview.groups import Groups
from traceview.records import record
from traceview.rules.engine import FindingRule, TimeClaim
from traceview.rules.gpus import gpu_name, gpu_subject
from traceview.rules.kernels import gained
from traceview.rules.sentences import Clause
from traceview.tables import Integers, Mask
from traceview.trace import Trace
from traceview.units import Value

_LEAST_EQUAL = 4
_RANK_FILE = re.compile(r"\.rank\d+\.")


_OVERLAP = (
    "Overlap it with compute: start each transfer as soon as its data is ready, on a stream of its "
    "own, in fewer and larger pieces. Or exchange fewer bytes."
)
_LARGER = (
    "Exchange more per call: small messages use little of the link (bucket_cap_mb of "
    "DistributedDataParallel, larger units of FSDP). And overlap it with compute."
)
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
    of_kind = exposure(trace, moved.device[rows], start, end, by_kind).exposed_ns
    most = int(np.argmax(of_kind))
    kind = int(moved.kind[rows[by_kind.first[most]]])
    absent = beyond_fastest(trace, moved, waits, rows)
    values, remedy = _late(trace, moved, waits, rows, exposed_ns), _OVERLAP
    waits_mostly = bool(values) and int(values["wait_ns"] or 0) >= _MOSTLY * exposed_ns
    # The time of the fastest calls may be hidden or exposed; any other exposed time is waiting.
    beyond_ns = exposed_ns - (int(moved.duration_ns[rows].sum()) - absent.total_ns)
    if not values and beyond_ns >= _MOSTLY * exposed_ns:
        values, remedy = {"beyond_fastest_ns": beyond_ns}, how_to_read_all(trace)
    elif not waits_mostly:
        message = _message(moved, waits, absent, rows[moved.kind[rows] == kind])
        small = bool(message) and int(message["message_bytes"] or 0) < _SMALL_BYTES
        values, remedy = {**message, **values}, _LARGER if small else _OVERLAP
    # Only the GPU that the others wait for can save what they wait.
    hidden = Gain(exposed_ns, exposed_ns)
    if not waits_mostly and "beyond_fastest_ns" not in values:
        hidden = gains.of_operations(trace, moved.operation[steady], stay=True, own_ns=exposed_ns)
    if waits_mostly:
        remedy = _LESS_WORK if values["late_cause"] == "gpu-work" else _LATE_IDLE
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
        **gained(hidden),
        span_ns=span_ns,
        window=(int(moved.start_ns[longest]), int(moved.end_ns[longest])),
        work=LostTime(device, intervals.union(start, end)),
        remedy=remedy,
        words={
            "alone": "{exposed_ns}" if alone else "",
            "in_all": "" if alone else "{communication_ns}",
            "alike": "of the same size" if absent.by_size else "at the same place of a step",
            "does": "works longer between transfers" if works else "is idle longer between them",
        },
    )


def _exposure(trace: Trace, moved: Transfers, rows: Integers) -> tuple[int, int]:
    """Time of these transfers of one GPU that compute hides, and that no compute hides."""
    together = Groups(np.zeros(len(rows), np.int64), np.zeros(1, np.int64))
    start, end = moved.start_ns[rows], moved.end_ns[rows]
    whole = exposure(trace, moved.device[rows], start, end, together)
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

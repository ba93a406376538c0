"""Finding of communication: time that compute does not hide, and the GPU that arrives last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.analyses.communication.absent_ranks import (
    BeyondFastest,
    beyond_fastest,
    how_to_read_all,
)
from traceview.analyses.communication.pairing import Waiting
from traceview.analyses.gpu_wording import gpu_name, gpu_subject
from traceview.facts.collectives.transfers import Transfers
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.facts.operations.exposure import exposure
from traceview.findings import Evidence, Finding, LostTime, severity_of, share_pct
from traceview.groups import Groups
from traceview.records import record
from traceview.tables import Integers, Mask
from traceview.trace import Trace
from traceview.units import Value

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


@record
class _MostExposed:
    """Transfers of one GPU after warm-up (`rows`), and how much of their time no compute hides."""

    device: int
    rows: Integers
    exposed_ns: int
    span_ns: int


class _Clause(NamedTuple):
    """A part of the finding's sentence. Its remedy replaces those of clauses before it."""

    text: str
    values: dict[str, Value]
    remedy: str | None = None


def exposed_communication(trace: Trace, moved: Transfers, waits: Waiting) -> Iterator[Finding]:
    """One finding, on the GPU with most exposed communication after warm-up."""
    most = _most_exposed(trace, moved)
    severity = severity_of(most.exposed_ns, most.span_ns) if most else None
    if most is None or severity is None:
        return
    clauses = _clauses(trace, moved, waits, most)
    rows = most.rows
    longest = rows[np.argmax(moved.duration_ns[rows])]
    yield Finding(
        severity,
        "".join(clause.text for clause in clauses),
        [clause.remedy for clause in clauses if clause.remedy][-1],
        most.exposed_ns,
        gpu_subject(trace, most.device),
        Evidence(
            {name: value for clause in clauses for name, value in clause.values.items()},
            "ranks",
            {"rank": int(np.searchsorted(groups.different(moved.device), most.device))},
            int(moved.start_ns[longest]),
            int(moved.end_ns[longest]),
        ),
        share_pct(most.exposed_ns, most.span_ns),
        work=LostTime(most.device, intervals.union(moved.start_ns[rows], moved.end_ns[rows])),
    )


def _most_exposed(trace: Trace, moved: Transfers) -> _MostExposed | None:
    """The GPU with most exposed communication after warm-up; None without any communication."""
    steady = np.flatnonzero(moved.steady)
    if not len(steady):
        return None
    rows = {
        device: steady[moved.device[steady] == device]
        for device in groups.different(moved.device[steady]).tolist()
    }
    exposed = {device: _exposed_ns(trace, moved, own) for device, own in rows.items()}
    device = max(exposed, key=lambda each: (exposed[each], -each))
    span_ns = steady_spans_ns(trace).get(device, 0)
    return _MostExposed(device, rows[device], min(exposed[device], span_ns), span_ns)


def _clauses(
    trace: Trace, moved: Transfers, waits: Waiting, most: _MostExposed
) -> Sequence[_Clause]:
    """Clauses: how much is exposed; waiting for absent ranks or message size; the late GPU."""
    exposed = _exposed_clause(trace, moved, most)
    absent = beyond_fastest(trace, moved, waits, most.rows)
    late = _late_clause(trace, moved, waits, most)
    second = None if late else _absent_clause(trace, moved, most, absent)
    waits_mostly = late is not None and late.remedy is not None
    if second is None and not waits_mostly:
        second = _message_clause(moved, waits, absent, most.rows, str(exposed.values["kind"]))
    return [clause for clause in (exposed, second, late) if clause]


def _exposed_ns(trace: Trace, moved: Transfers, rows: Integers) -> int:
    """Time of these transfers of one GPU that no compute hides."""
    together = Groups(np.zeros(len(rows), np.int64), np.zeros(1, np.int64))
    start, end = moved.start_ns[rows], moved.end_ns[rows]
    return int(exposure(trace, moved.device[rows], start, end, together).exposed_ns[0])


def _exposed_clause(trace: Trace, moved: Transfers, most: _MostExposed) -> _Clause:
    rows, device = most.rows, moved.device[most.rows]
    by = groups.group(moved.kind[rows])
    start, end = moved.start_ns[rows], moved.end_ns[rows]
    share = exposure(trace, device, start, end, by)
    kind = int(np.argmax(share.exposed_ns))
    together = Groups(np.zeros(len(rows), np.int64), np.zeros(1, np.int64))
    whole = exposure(trace, device, start, end, together)
    communication_ns = int(whole.hidden_ns[0] + whole.exposed_ns[0])
    text = "{gpu} communicates for {exposed_ns} without computing"
    if communication_ns > _AS_LONG * most.exposed_ns:
        text = "{gpu} communicates for {communication_ns}, {exposed_ns} of it without computing"
    values: dict[str, Value] = {
        "gpu": gpu_name(trace, most.device),
        "exposed_ns": most.exposed_ns,
        "communication_ns": communication_ns,
        "kind": moved.kinds[int(moved.kind[rows[by.first[kind]]])],
        "kind_exposed_ns": int(share.exposed_ns[kind]),
        "calls": int(groups.count(by)[kind]),
    }
    most_of_it = ", most of it in {kind} ({kind_exposed_ns} in {calls:call})."
    return _Clause(text + most_of_it, values, _OVERLAP)


def _absent_clause(
    trace: Trace, moved: Transfers, most: _MostExposed, absent: BeyondFastest
) -> _Clause | None:
    """Waiting for ranks that are not recorded, where that is half of the exposed time."""
    # The time of the fastest calls may be hidden or exposed; any other exposed time is waiting.
    fastest_ns = int(moved.duration_ns[most.rows].sum()) - absent.total_ns
    beyond_ns = most.exposed_ns - fastest_ns
    if beyond_ns < _MOSTLY * most.exposed_ns:
        return None
    alike = "of the same size" if absent.by_size else "at the same place of a step"
    return _Clause(
        f" {{beyond_fastest_ns}} of it is more than the fastest calls {alike} take: "
        "most likely waiting for ranks that this recording does not hold.",
        {"beyond_fastest_ns": beyond_ns},
        how_to_read_all(trace),
    )


def _message_clause(
    moved: Transfers, waits: Waiting, absent: BeyondFastest, rows: Integers, kind: str
) -> _Clause | None:
    """Median size of the transfers of a kind, and their bus bandwidth; None where unknown.

    Bandwidth leaves out the time that they waited, or took beyond the fastest equal transfer.
    """
    waited = np.maximum(waits.wait_ns, 0)
    waited[absent.rows] = absent.beyond_ns
    rows = rows[moved.kind[rows] == moved.kinds.index(kind)]
    time_ns = int((moved.duration_ns[rows] - waited[rows]).sum())
    if (moved.bus_bytes[rows] < 0).any() or time_ns <= 0:
        return None
    message_bytes = int(np.median(moved.bytes[rows]))
    bus_bytes_per_s = round(int(moved.bus_bytes[rows].sum()) * 1e9 / time_ns)
    return _Clause(
        " Each moves {message_bytes} (median), at {bus_bytes_per_s}.",
        {"message_bytes": message_bytes, "bus_bytes_per_s": bus_bytes_per_s},
        _LARGER if message_bytes < _SMALL_BYTES else None,
    )


def _late_clause(
    trace: Trace, moved: Transfers, waits: Waiting, most: _MostExposed
) -> _Clause | None:
    """The GPU that these transfers wait for most, where that is a tenth of the exposed time.

    The clause has a remedy where the wait is half of the exposed time.
    """
    wait_ns = int(np.maximum(waits.wait_ns[most.rows], 0).sum())
    if wait_ns < _WORTH_NAMING_FRACTION * most.exposed_ns:
        return None
    others: Mask = (moved.device != most.device) & moved.steady & (waits.late_ns > 0)
    if not others.any():
        return None
    by = groups.group(moved.device[others])
    last = int(np.argmax(groups.sums(by, waits.late_ns[others])))
    late = int(moved.device[np.flatnonzero(others)[by.first[last]]])
    own = others & (moved.device == late)
    works = bool(waits.extra_work_ns[own].sum() >= waits.extra_idle_ns[own].sum())
    text = "works longer between transfers." if works else "is idle longer between them."
    values: dict[str, Value] = {
        "wait_ns": min(wait_ns, most.exposed_ns),
        "late_gpu": gpu_name(trace, late),
        "late_cause": "gpu-work" if works else "gpu-idle",
    }
    mostly = min(wait_ns, most.exposed_ns) >= _MOSTLY * most.exposed_ns
    remedy = (_LESS_WORK if works else _LATE_IDLE) if mostly else None
    return _Clause(" {wait_ns} of it waits for {late_gpu}, which " + text, values, remedy)

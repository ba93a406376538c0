"""Finding of communication: time that compute does not hide, and the GPU that arrives last."""

from __future__ import annotations

from collections.abc import Iterator

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
# At 1 MiB two H200 reached a quarter of the bandwidth of 256 MiB (tests/data/collectives).
_SMALL_BYTES = 1 << 20
_WORTH_NAMING_FRACTION = 0.1
_MOSTLY = 0.5
_NEARLY_ALL = 1.01


def exposed_communication(trace: Trace, moved: Transfers, waits: Waiting) -> Iterator[Finding]:
    """One finding, on the GPU with most exposed communication after warm-up."""
    steady = np.flatnonzero(moved.steady)
    if not len(steady):
        return
    exposed = {
        device: _exposed_ns(trace, moved, steady[moved.device[steady] == device])
        for device in groups.different(moved.device[steady]).tolist()
    }
    device = max(exposed, key=lambda each: (exposed[each], -each))
    exposed_ns, span_ns = exposed[device], steady_spans_ns(trace).get(device, 0)
    exposed_ns = min(exposed_ns, span_ns)
    severity = severity_of(exposed_ns, span_ns)
    if severity is None:
        return
    rows = steady[moved.device[steady] == device]
    values = _values(trace, moved, rows, exposed_ns, device)
    hides = int(values["communication_ns"] or 0) > _NEARLY_ALL * exposed_ns
    template = (
        "{gpu} communicates for {communication_ns}, {exposed_ns} of it without computing"
        if hides
        else "{gpu} communicates for {exposed_ns} without computing"
    )
    template += ", most of it in {kind} ({kind_exposed_ns} in {calls:call})."
    remedy = _OVERLAP
    absent = beyond_fastest(moved, waits, rows)
    sent = _message(moved, waits, absent, rows, str(values["kind"]))
    late = _late_gpu(trace, moved, waits, rows, exposed_ns)
    # What the fastest calls take may be hidden or exposed: the rest of the exposed time waits.
    beyond_ns = exposed_ns - (int(moved.duration_ns[rows].sum()) - absent.total_ns)
    if late is None and beyond_ns >= _MOSTLY * exposed_ns:
        values["beyond_fastest_ns"] = beyond_ns
        template += (
            " {beyond_fastest_ns} of it is more than the fastest calls of the same size take: "
            "most likely waiting for ranks that this recording does not hold."
        )
        remedy = how_to_read_all(trace)
    elif sent is not None and (late is None or int(late["wait_ns"] or 0) < _MOSTLY * exposed_ns):
        values |= sent
        template += " Each moves {message_bytes} (median), at {bus_bytes_per_s}."
        if int(sent["message_bytes"] or 0) < _SMALL_BYTES:
            remedy = _LARGER
    if late is not None:
        values |= late
        template += " {wait_ns} of it waits for {late_gpu}, which "
        worked = late["late_cause"] == "gpu-work"
        template += "works longer between transfers." if worked else "is idle longer between them."
        if int(late["wait_ns"] or 0) >= _MOSTLY * exposed_ns:
            remedy = (
                "Give {late_gpu} less work per step, or the other GPUs more."
                if worked
                else "Look at why {late_gpu} is idle before it communicates (gpu-idle): the other "
                "GPUs wait for it."
            )
    longest = rows[np.argmax(moved.duration_ns[rows])]
    yield Finding(
        severity,
        template,
        remedy,
        exposed_ns,
        gpu_subject(trace, device),
        Evidence(
            values,
            "ranks",
            {"rank": int(np.searchsorted(groups.different(moved.device), device))},
            int(moved.start_ns[longest]),
            int(moved.end_ns[longest]),
        ),
        share_pct(exposed_ns, span_ns),
        work=LostTime(device, intervals.union(moved.start_ns[rows], moved.end_ns[rows])),
    )


def _exposed_ns(trace: Trace, moved: Transfers, rows: Integers) -> int:
    """Time of these transfers of one GPU that no compute hides."""
    together = Groups(np.zeros(len(rows), np.int64), np.zeros(1, np.int64))
    start, end = moved.start_ns[rows], moved.end_ns[rows]
    return int(exposure(trace, moved.device[rows], start, end, together).exposed_ns[0])


def _values(
    trace: Trace, moved: Transfers, rows: Integers, exposed_ns: int, device: int
) -> dict[str, Value]:
    by = groups.group(moved.kind[rows])
    start, end = moved.start_ns[rows], moved.end_ns[rows]
    share = exposure(trace, moved.device[rows], start, end, by)
    most = int(np.argmax(share.exposed_ns))
    together = Groups(np.zeros(len(rows), np.int64), np.zeros(1, np.int64))
    whole = exposure(trace, moved.device[rows], start, end, together)
    return {
        "gpu": gpu_name(trace, device),
        "exposed_ns": exposed_ns,
        "communication_ns": int(whole.hidden_ns[0] + whole.exposed_ns[0]),
        "kind": moved.kinds[int(moved.kind[rows[by.first[most]]])],
        "kind_exposed_ns": int(share.exposed_ns[most]),
        "calls": int(groups.count(by)[most]),
    }


def _message(
    moved: Transfers, waits: Waiting, absent: BeyondFastest, rows: Integers, kind: str
) -> dict[str, Value] | None:
    """Median size of the transfers of a kind, and their bus bandwidth; None where unknown.

    Time that they waited, or took beyond the fastest equal ones, is left out of the bandwidth.
    """
    waited = np.maximum(waits.wait_ns, 0)
    waited[absent.rows] = absent.beyond_ns
    rows = rows[moved.kind[rows] == moved.kinds.index(kind)]
    time_ns = int((moved.duration_ns[rows] - waited[rows]).sum())
    if (moved.bus_bytes[rows] < 0).any() or time_ns <= 0:
        return None
    return {
        "message_bytes": int(np.median(moved.bytes[rows])),
        "bus_bytes_per_s": round(int(moved.bus_bytes[rows].sum()) * 1e9 / time_ns),
    }


def _late_gpu(
    trace: Trace, moved: Transfers, waits: Waiting, rows: Integers, exposed_ns: int
) -> dict[str, Value] | None:
    """The GPU that these transfers wait for most, where that is a tenth of the exposed time."""
    wait_ns = int(np.maximum(waits.wait_ns[rows], 0).sum())
    if wait_ns < _WORTH_NAMING_FRACTION * exposed_ns:
        return None
    device = moved.device[rows[0]]
    others: Mask = (moved.device != device) & moved.steady & (waits.late_ns > 0)
    if not others.any():
        return None
    by = groups.group(moved.device[others])
    last = int(np.argmax(groups.sums(by, waits.late_ns[others])))
    late = int(moved.device[np.flatnonzero(others)[by.first[last]]])
    own = others & (moved.device == late)
    work, idle = waits.extra_work_ns[own].sum(), waits.extra_idle_ns[own].sum()
    return {
        "wait_ns": min(wait_ns, exposed_ns),
        "late_gpu": gpu_name(trace, late),
        "late_cause": "gpu-work" if work >= idle else "gpu-idle",
    }

"""What GPUs exchange, how much of that time compute hides, and which GPU the others wait for.

A collective takes few SMs and mostly waits: its time counts only as far as no compute of its GPU
runs meanwhile. NCCL's kernels do not tell their sizes; the payloads of its NVTX ranges do.

A collective ends on all GPUs together, so the one with the shortest kernel arrived last. `wait_ns`
of each other is its own kernel's time less that one's. Bus bandwidth is bytes × the factor that
nccl-tests uses ÷ time without waiting.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.base import groups
from traceview.base.groups import Groups
from traceview.base.hardware.rates import rates_of
from traceview.base.tables import NULL, Cell, Integers, Mask, Table, TableSpec, Texts, column_list
from traceview.traces.analyses import contention, wording
from traceview.traces.analyses.base import Analysis, Chart, Deferred, Result
from traceview.traces.analyses.communication_findings import EXPOSED, Waiting, cause_of, waiting
from traceview.traces.facts.collectives import Transfers, transfers
from traceview.traces.facts.copies import exposure
from traceview.traces.facts.idle.gaps import device_work, steady_spans_ns
from traceview.traces.facts.operations import HOST, device_hosts, gpu_cells, operations
from traceview.traces.facts.steps.steps import pace, steps
from traceview.traces.facts.work.peaks import bytes_per_s
from traceview.traces.rules import findings
from traceview.traces.trace import Trace

BUS = (
    "bus_bytes_per_s int64?: bus bandwidth as in nccl-tests: bytes that each rank must send ÷ "
    "time without waiting; absent where unknown"
)
SIZES = TableSpec(
    "sizes",
    "one row per kind, size and number of ranks, over all GPUs; longest first",
    column_list(f"""
        kind text: all-reduce, all-gather, send-receive …, or peer-copy
        bytes int64: bytes of a call, of its larger buffer
        ranks int64?: ranks of the communicator
        calls int64: calls, over all GPUs
        total_ns int64: GPU time of all calls, waiting included
        median_ns int64: median time of a call, without waiting
        {BUS}
        link_pct float64?: percentage of the NVLink rate of the product, one way; absent between
            machines and for products without NVLink
    """),
    brief="kind bytes ranks calls median_ns bus_bytes_per_s link_pct total_ns",
    adds="calls total_ns",
    rare=True,
)


def sizes(trace: Trace, moved: Transfers, waits: Waiting) -> Table:
    """The table of transfers by kind and size, without transfers of unknown size."""
    rows = np.flatnonzero(moved.bytes >= 0)
    by = groups.group(moved.kind[rows], moved.bytes[rows], moved.ranks[rows])
    net = moved.duration_ns[rows] - np.maximum(waits.wait_ns[rows], 0)
    total, first = groups.sums(by, moved.duration_ns[rows]), rows[by.first]
    bus = known_rates(known_sums(by, moved.bus_bytes[rows]), groups.sums(by, net))
    link = np.rint(groups.medians(by.ids, by.size, _links(trace, moved)[rows]))
    known = (bus != NULL) & (link > 0)
    ranks = moved.ranks[first]
    table = Table(
        SIZES.columns,
        {
            "kind": Texts.of([moved.kinds[kind] for kind in moved.kind[first].tolist()]),
            "bytes": moved.bytes[first],
            "ranks": np.where(ranks > 0, ranks, NULL),
            "calls": groups.count(by),
            "total_ns": total,
            "median_ns": np.rint(groups.medians(by.ids, by.size, net)).astype(np.int64),
            "bus_bytes_per_s": bus,
            "link_pct": np.where(known, 100.0 * bus / np.maximum(link, 1), np.nan),
        },
    )
    return table.take(groups.most_first(total))


def known_sums(by: Groups, values: Integers) -> Integers:
    """The sum of each group, NULL where one of its values is unknown (−1)."""
    unknown = groups.sums(by, (values < 0).astype(np.int64)) > 0
    return np.where(unknown, NULL, groups.sums(by, np.maximum(values, 0)))


def known_rates(size: Integers, time_ns: Integers) -> Integers:
    """Bytes per second, NULL where the bytes are NULL or the time is 0."""
    return np.where((size == NULL) | (time_ns <= 0), NULL, bytes_per_s(size, time_ns))


def _links(trace: Trace, moved: Transfers) -> Integers:
    """NVLink rate of the GPU of each transfer, 0 where unknown or where it leaves the machine."""
    devices = trace.devices
    named = zip(devices.texts("name").decode(), devices["sm_count"].tolist(), strict=True)
    published = [rates_of(name, sms if sms > 0 else None) for name, sms in named]
    link = np.array([(rate and rate.nvlink_bytes_per_s) or 0 for rate in published], np.int64)
    # True where all ranks of the communicator ran on GPUs of one machine of the recording.
    hosts, numbers = device_hosts(trace), np.unique(moved.communicator, return_inverse=True)[1]
    members = groups.group(numbers.astype(np.int64), moved.device)
    seen = np.bincount(numbers[members.first], minlength=int(numbers.max(initial=0)) + 1)
    machines = groups.group(numbers.astype(np.int64), hosts[moved.device])
    spread = np.bincount(numbers[machines.first], minlength=len(seen))
    within: Mask = (seen[numbers] == moved.ranks) & (spread[numbers] == 1)
    return np.where(within, link[moved.device], 0)


_RANK = "rank int64: number of the GPU among those that communicate, in order of machine and device"
COLLECTIVES = TableSpec(
    "collectives",
    "one row per GPU, kind and group of collectives, or copies between GPUs; longest exposed first",
    column_list(f"""
        device_id int64: GPU
        {HOST}
        {_RANK}
        kind text: all-reduce, all-gather, send-receive …, peer-copy, or a kernel's name
        group text?: ranks of the communicator, inferred from the order and times of collectives
        calls int64: collectives, or copies
        bytes int64?: bytes of all calls, of the larger buffer of each; absent where unknown
        total_ns int64: GPU time of all calls, waiting included
        hidden_ns int64: time of these calls that overlaps compute on the same GPU
        exposed_ns int64: time of these calls without compute on the same GPU
        wait_ns int64?: time these calls waited: their excess over the GPU that arrived last; absent
            where the other GPUs are not in the recording
        {BUS}
        communicator text?: NCCL's number of the communicator, in hex
        ranks int64?: ranks of the communicator
    """),
    brief="device_id kind group calls total_ns exposed_ns wait_ns hidden_ns bytes bus_bytes_per_s",
    adds="calls total_ns bytes wait_ns",
    rare=True,
)
RANKS = TableSpec(
    "ranks",
    "one row per GPU that communicates",
    column_list(f"""
        {_RANK}
        device_id int64: GPU
        {HOST}
        step_median_ns int64?: median time of a step
        busy_pct float64: percentage of steady time in which the GPU is busy
        communication_ns int64: time in which it communicates
        exposed_ns int64: time in which it communicates and does not compute
        wait_ns int64?: time it waited for GPUs that arrived later
        late_ns int64?: time that the others waited for it
        cause text?: why it arrives last, where it does: gpu-work (it works longer between
            collectives than the others) or gpu-idle (it is idle longer)
    """),
    brief="rank busy_pct exposed_ns wait_ns late_ns cause step_median_ns",
    rare=True,
)


def compute(trace: Trace) -> Result:
    moved, waits = transfers(trace), waiting(trace)
    devices = groups.different(moved.device)
    tables = Deferred(
        lambda: {
            "collectives": _collectives(trace, moved, waits, devices),
            "sizes": sizes(trace, moved, waits),
            "ranks": _ranks(trace, moved, waits, devices),
        }
    )
    return Result(
        tables,
        tuple(findings(trace, [EXPOSED, contention.CONTENTION])),
        Deferred(
            lambda: (
                {"ranks": len(ranks), "most_exposed_ns": int(ranks["exposed_ns"].max())}
                if len(ranks := tables["ranks"])
                else {}
            )
        ),
        tuple(_notes(trace, moved, waits)),
    )


def _collectives(trace: Trace, moved: Transfers, waits: Waiting, devices: Integers) -> Table:
    named = np.unique(moved.communicator, return_inverse=True)[1].astype(np.int64)
    by = groups.group(moved.device, moved.kind, waits.communicator, named)
    total = groups.sums(by, moved.duration_ns)
    share = exposure(trace, moved.device, moved.start_ns, moved.end_ns, by)
    device = moved.device[by.first]
    paired = waits.communicator[by.first] >= 0
    wait = groups.sums(by, np.maximum(waits.wait_ns, 0))
    ranks = moved.ranks[by.first]
    table = Table(
        COLLECTIVES.columns,
        {
            "device_id": trace.devices["device_id"][device].astype(np.int64),
            "host_id": device_hosts(trace)[device],
            "rank": np.searchsorted(devices, device).astype(np.int64),
            "kind": Texts.of([moved.kinds[kind] for kind in moved.kind[by.first].tolist()]),
            "group": Texts.of(_groups(waits, devices, waits.communicator[by.first])),
            "calls": groups.count(by),
            "bytes": known_sums(by, moved.bytes),
            "total_ns": total,
            "hidden_ns": share.hidden_ns,
            "exposed_ns": share.exposed_ns,
            "wait_ns": np.where(paired, wait, NULL),
            "bus_bytes_per_s": known_rates(known_sums(by, moved.bus_bytes), total - wait),
            "communicator": Texts.of(
                None if number == NULL else f"{number % 2**64:016x}"
                for number in moved.communicator[by.first].tolist()
            ),
            "ranks": np.where(ranks > 0, ranks, NULL),
        },
    )
    return table.take(np.lexsort((-total, -share.exposed_ns)))


def _groups(waits: Waiting, devices: Integers, numbers: Integers) -> Iterator[str | None]:
    """Yield the ranks of each communicator, such as `0, 1`; None for a transfer without one."""
    for number in numbers.tolist():
        if number < 0:
            yield None
        else:
            members = np.searchsorted(devices, waits.devices[number])
            yield ", ".join(map(str, sorted(members.tolist())))


def _ranks(trace: Trace, moved: Transfers, waits: Waiting, devices: Integers) -> Table:
    by = groups.group(moved.device)
    share = exposure(trace, moved.device, moved.start_ns, moved.end_ns, by)
    spans = steady_spans_ns(trace)
    rows = []
    for rank, device in enumerate(devices.tolist()):
        own = moved.device == device
        span, work = spans.get(device, 0), device_work(trace)[device].steady_ns
        rows.append(
            {
                "rank": rank,
                **gpu_cells(trace, device),
                "step_median_ns": _step_median_ns(trace, moved, device),
                "busy_pct": 100.0 * work / span if span else 0.0,
                "communication_ns": int(share.hidden_ns[rank] + share.exposed_ns[rank]),
                "exposed_ns": int(share.exposed_ns[rank]),
                **_waits_of(waits, own),
            }
        )
    return Table.from_rows(RANKS.columns, rows)


def _waits_of(waits: Waiting, own: Mask) -> dict[str, Cell]:
    """Waiting and lateness of one GPU; absent where none of its collectives is paired."""
    if not (waits.communicator[own] >= 0).any():
        return dict.fromkeys(("wait_ns", "late_ns", "cause"))
    late_ns = int(waits.late_ns[own].sum())
    return {
        "wait_ns": int(np.maximum(waits.wait_ns[own], 0).sum()),
        "late_ns": late_ns,
        "cause": cause_of(waits, own) if late_ns else None,
    }


def _step_median_ns(trace: Trace, moved: Transfers, device: int) -> int | None:
    """Median time of a step after warm-up, in the series of a GPU's process that takes most."""
    every, timed = steps(trace), pace(trace)
    process = operations(trace).process[moved.operation[np.argmax(moved.device == device)]]
    own = np.flatnonzero((every.process == process) & (every.operations > 0))
    if not len(own):
        return None
    total_ns = np.bincount(every.series[own], timed.duration_ns[own])
    longest = own[every.series[own] == np.argmax(total_ns)]
    steady = longest[~timed.warm_up[longest]]
    return round(float(np.median(timed.duration_ns[steady if len(steady) else longest])))


def _notes(trace: Trace, moved: Transfers, waits: Waiting) -> Iterator[str]:
    if not len(moved):
        yield "No data was exchanged between GPUs."
        return
    if moved.is_collective.any():
        yield from _unknown_sizes(trace, moved)
        if not (waits.communicator >= 0).any():
            yield (
                "Which GPU waits for which is unknown, because no collective in this "
                "recording has a counterpart on another GPU."
            )


def _unknown_sizes(trace: Trace, moved: Transfers) -> Iterator[str]:
    """Why collectives have no bytes, and how to record them."""
    unknown = int((moved.is_collective & (moved.bytes < 0)).sum())
    no_rate = int((moved.is_collective & (moved.bus_bytes < 0) & (moved.bytes >= 0)).sum())
    of_all = f"{unknown:,} of {int(moved.is_collective.sum()):,} collectives"
    calls = trace.recorded("collective_calls")
    if unknown and (not len(calls) or calls.is_null("bytes").all()):
        how = wording.by_recorder(
            trace,
            "NCCL writes them into its NVTX ranges: record with --trace=cuda,nvtx and export with "
            "--include-blobs=true.",
            "torch 2.1 and newer write them for collectives of torch.distributed.",
        )
        yield f"The sizes of collectives are not in the recording. {how}"
    elif unknown:
        library = wording.by_recorder(trace, "NCCL", "torch.distributed")
        yield (
            f"The sizes of {of_all} are unknown: no call of {library}, or a group of them, matches."
        )
    if no_rate:
        yield (
            "Bus bandwidth of all-reduces is unknown where the recording began after their "
            "communicator was created."
        )


ANALYSIS = Analysis(
    name="communication",
    title="Communication",
    question="How long do GPUs exchange data without computing, and which one do they wait for?",
    needs=("kernels",),
    tables=(COLLECTIVES, SIZES, RANKS),
    compute=compute,
    charts=(
        Chart("bars", "collectives", "Communication by kind", "kind", "total_ns", stack="group"),
    ),
)

"""Table `sizes`: how fast each collective moves messages of each size, against the link."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.analyses.base import TableSpec
from traceview.analyses.communication.pairing import Waiting
from traceview.facts.collectives.transfers import Transfers
from traceview.facts.operations.hosts import device_hosts
from traceview.facts.work.peaks import bytes_per_s
from traceview.groups import Groups
from traceview.hardware.rates import rates_of
from traceview.tables import NULL, Column, Integers, Mask, Table, Texts
from traceview.trace import Trace

BUS = Column(
    "bus_bytes_per_s",
    "int64",
    "bus bandwidth as in nccl-tests: bytes that each rank must send ÷ time without waiting; absent "
    "where unknown",
    nullable=True,
)
SIZES = TableSpec(
    "sizes",
    "one row per kind, size and number of ranks, over all GPUs; longest first",
    (
        Column("kind", "text", "all-reduce, all-gather, send-receive …, or peer-copy"),
        Column("bytes", "int64", "bytes of a call, of its larger buffer"),
        Column("ranks", "int64", "ranks of the communicator", nullable=True),
        Column("calls", "int64", "calls, over all GPUs"),
        Column("total_ns", "int64", "GPU time of all calls, waiting included"),
        Column("median_ns", "int64", "median time of a call, without waiting"),
        BUS,
        Column(
            "link_pct",
            "float64",
            "percentage of the NVLink rate of the product, one way; absent between machines and "
            "for products without NVLink",
            nullable=True,
        ),
    ),
    brief=(
        *("kind", "bytes", "ranks", "calls", "median_ns", "bus_bytes_per_s", "link_pct"),
        "total_ns",
    ),
    adds=("calls", "total_ns"),
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
    return np.where(_within_machine(trace, moved), link[moved.device], 0)


def _within_machine(trace: Trace, moved: Transfers) -> Mask:
    """True where all ranks of the communicator ran on GPUs of one machine of the recording."""
    hosts, numbers = device_hosts(trace), np.unique(moved.communicator, return_inverse=True)[1]
    members = groups.group(numbers.astype(np.int64), moved.device)
    seen = np.bincount(numbers[members.first], minlength=int(numbers.max(initial=0)) + 1)
    machines = groups.group(numbers.astype(np.int64), hosts[moved.device])
    spread = np.bincount(numbers[machines.first], minlength=len(seen))
    within: Mask = (seen[numbers] == moved.ranks) & (spread[numbers] == 1)
    return within

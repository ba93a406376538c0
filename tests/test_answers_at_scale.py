"""Answers about a long trace equal those of plain loops over its rows.

Shortcuts for many rows (direct addressing, keys of several columns in one number, texts made when
they are shown) do not come into play in small traces. `TRACEVIEW_TEST_KERNELS=1000000` asks for a
longer one.
"""

from __future__ import annotations

import os
from collections import defaultdict

import pytest

from benchmarks.make_trace import make_trace
from tests.oracle import UNATTRIBUTED, Range, Recording
from tests.test_against_brute_force import (
    Both,
    calls_agree,
    causes_agree,
    copies_agree,
    devices_agree,
    kernels_agree,
    queues_agree,
)
from traceview.analyses import kernel_share

KERNELS = int(os.environ.get("TRACEVIEW_TEST_KERNELS", "20000"))


@pytest.fixture(scope="module", params=[1, 2], ids=["one-process", "two-processes"])
def long(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "long.sqlite"
    make_trace(path, KERNELS, processes=request.param, streams=4, seed=7)
    return Both.of(path)


@pytest.mark.parametrize("agree", [kernels_agree, calls_agree, copies_agree])
def test_sums(long, agree):
    agree(long)


# The oracle tells GPUs apart by their number alone, and each process calls its own number 0.
@pytest.mark.parametrize("long", [1], indirect=True, ids=["one-process"])
@pytest.mark.parametrize("agree", [devices_agree, causes_agree, queues_agree])
def test_timelines(long, agree):
    agree(long)


def test_ranges(long):
    theirs = _by_range(long.recording)
    tables = kernel_share.compute(long.trace).tables
    ours = {
        (row["range_path"], row["short_name"]): (row["calls"], row["total_ns"])
        for row in tables["ranges"].rows()
    }
    assert len(ours) == len(tables["ranges"]) > KERNELS // 4
    assert ours == theirs
    around: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (path, _), (calls, total) in theirs.items():
        names = path.split("/")
        for depth in range(1, len(names) + 1):
            around["/".join(names[:depth])][0] += calls
            around["/".join(names[:depth])][1] += total
    assert around == {
        row["range_path"]: [row["calls"], row["total_ns"]]
        for row in tables["ranges_inclusive"].rows()
    }


def _by_range(recording: Recording) -> dict[tuple[str, str], tuple[int, int]]:
    """Calls and time of each path and kernel: one walk along each thread, with a stack."""
    paths = _paths(recording)
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for op in recording.operations:
        if op.kind == "kernel":
            row = found[paths[op.call], op.name.split("<")[0].split("::")[-1]]
            row[0] += 1
            row[1] += op.end - op.start
    return {key: (calls, total) for key, (calls, total) in found.items()}


def _paths(recording: Recording) -> dict[object, str]:
    paths: dict[object, str] = {}
    for thread, calls in recording.calls_of.items():
        coming = sorted(recording.ranges[thread], key=lambda each: (-each.start, each.end))
        stack: list[Range] = []
        for call in sorted(calls, key=lambda call: call.start):
            while coming and coming[-1].start <= call.start:
                _close(stack, coming[-1].start)
                stack.append(coming.pop())
            _close(stack, call.start)
            paths[call] = "/".join(each.name for each in stack) or UNATTRIBUTED
    return paths


def _close(stack: list[Range], time: int) -> None:
    while stack and stack[-1].end <= time:
        stack.pop()

"""Collectives that torch.distributed notes for the profiler: sizes, groups, order and launches."""

from pathlib import Path
from typing import Any

import pytest

from tests.trace.kineto.traces import Event, call, kernel, span, write
from traceview import Trace, load
from traceview.traces.facts.collectives import transfers
from traceview.traces.trace.kineto.collectives import exchanged_bytes

MOE = {"Group size": 4, "dtype": "BFloat16", "Process Group Ranks": "[0, 2, 4, 6]"}


def noted(name: str, start: int, length: int, **args: Any) -> Event:
    """The operator around a call of a process group of two ranks, of floats."""
    known = {
        "Collective name": name, "Group size": 2, "dtype": "Float", "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]", "In split size": "[]", "Out split size": "[]",
    }  # fmt: skip
    return span("cpu_op", "record_param_comms", start, length, args={**known, **args})


def served(event: Event, number: int, name: str = "SendRecv") -> list[Event]:
    """A call with the kernel that it launches."""
    start = event["ts"]
    return [event, *launched(start + 1, number, name)]


def launched(start: int, number: int, name: str = "SendRecv") -> list[Event]:
    runs = kernel(f"ncclDevKernel_{name}(x)", 10_000 + 100 * number, 50, number, stream=20)
    return [call("cuLaunchKernelEx", start, 2, number), runs]


def loaded(folder: Path, events: list[Event], rank: int = 0) -> Trace:
    job = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 8}}
    return load(write(folder / "t.json", events, footer=job))


@pytest.mark.parametrize(
    ("name", "counts", "expected"),
    [
        ("allreduce", {"In msg nelems": 100, "Out msg nelems": 100}, (400, 400)),
        ("_allgather_base", {"In msg nelems": 100, "Out msg nelems": 200}, (800, 400)),
        ("all_gather", {"In msg nelems": 100, "Out msg nelems": 400}, (1600, 1200)),
        ("_reduce_scatter_base", {"In msg nelems": 200, "Out msg nelems": 100}, (800, 400)),
        ("all_to_all", {"In msg nelems": 200, "Out msg nelems": 200}, (800, 400)),
        ("broadcast", {"In msg nelems": 7, "Out msg nelems": 7}, (28, 28)),
    ],
)
def test_bytes_of_buffers_and_link(tmp_path: Path, name: str, counts, expected):
    """The third gathers parts of 100 and 300 elements."""
    trace = loaded(tmp_path, served(noted(name, 0, 20, **counts), 1), rank=0)
    moved = transfers(trace)
    assert (moved.bytes.tolist(), moved.bus_bytes.tolist()) == ([expected[0]], [expected[1]])


@pytest.mark.parametrize(("rank", "rows"), [(0, 9), (2, 8), (4, 7), (6, 7)])
def test_an_all_to_all_with_splits(tmp_path: Path, rank: int, rows: int):
    """Rows of 5 elements of 2 bytes; what a rank keeps does not use the link."""
    splits = {"In split size": "[1, 2, 3, 4]", "Out split size": "[4, 1, 2, 2]"}
    counts = {"In msg nelems": 50, "Out msg nelems": 45}
    event = noted("all_to_allv", 0, 20, **MOE, **splits, **counts)
    moved = transfers(loaded(tmp_path, served(event, 1), rank=rank))
    assert (moved.bytes.tolist(), moved.bus_bytes.tolist()) == ([100], [10 * rows])


def test_an_all_to_all_of_more_ranks_than_torch_lists(tmp_path: Path):
    """The size of the buffers is known, the own part is not: counted as an equal one."""
    splits = {"In split size": f"[{'1, ' * 30}...]", "Out split size": f"[{'2, ' * 30}...]"}
    args = {"Group size": 40, "In msg nelems": 400, "Out msg nelems": 800, **splits}
    event = noted("all_to_allv", 0, 20, **args)
    event["args"]["Process Group Ranks"] = f"[{', '.join(map(str, range(30)))}, ...]"
    moved = transfers(loaded(tmp_path, served(event, 1), rank=3))
    assert (moved.bytes.tolist(), moved.bus_bytes.tolist()) == ([3200], [3120])


def test_messages_launched_together_after_their_calls(tmp_path: Path):
    """torch launches what batch_isend_irecv was given within nccl:coalesced, outside the calls."""
    ends = {"Process Group Ranks": "[0, 1]", "Src Rank": 1, "Dst Rank": 1}
    events = [
        *served(noted("allreduce", 0, 20, **{"In msg nelems": 5}), 1, "AllReduce_Sum"),
        noted("send", 30, 5, **{"In msg nelems": 100, "Out msg nelems": 100}, **ends),
        noted("recv", 40, 5, **{"In msg nelems": 300, "Out msg nelems": 300}, **ends),
        span("user_annotation", "nccl:coalesced", 50, 10),
        *launched(52, 2),
        *served(noted("send", 70, 9, **{"In msg nelems": 11, "Out msg nelems": 11}, **ends), 3),
        noted("recv", 80, 5, **{"In msg nelems": 2, "Out msg nelems": 2}, **ends),
        *launched(90, 4),
        *launched(95, 5),
    ]
    moved = transfers(loaded(tmp_path, events, rank=0))
    assert moved.bytes.tolist()[:3] == [20, 1200, 44]
    assert moved.sends.tolist()[:3] == [False, True, True]
    assert moved.receives.tolist()[:3] == [False, True, False]
    assert moved.peer.tolist()[1:3] == [1, 1]
    # Two kernels of one class cannot be told apart for one call.
    assert moved.bytes.tolist()[3:] == [-1, -1]


def test_peers_are_ranks_of_the_group(tmp_path: Path):
    args = {"In msg nelems": 1, "Out msg nelems": 1, "Process Group Ranks": "[5, 1]"}
    events = [
        *served(noted("send", 0, 9, **args, **{"Dst Rank": 1}), 1),
        *served(noted("recv", 20, 9, **args, **{"Src Rank": 5}), 2),
        *served(noted("recv", 40, 9, **args, **{"Src Rank": 7}), 3),
    ]
    trace = loaded(tmp_path, events, rank=5)
    assert trace.table("collective_calls").cells("peer") == [1, 0, None]


def test_splits_that_name_more_than_any_buffer_holds_say_nothing():
    most = ", ".join(["999999999999999"] * 100)
    assert exchanged_bytes(f"[1, 0]|[{most}]|{1 << 47}", 0) is None
    assert exchanged_bytes("[1, 0]|[1, 2]|8", 0) == (12, 24, 16)

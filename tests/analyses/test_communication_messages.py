"""Bytes, communicators and bus bandwidth of collectives, from the payloads of NCCL's calls."""

import random

import numpy as np
import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.communication import ANALYSIS
from traceview.traces.facts.collectives import transfers

KERNELS = {
    "ncclAllReduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "ncclAllGather": "ncclDevKernel_AllGather_RING_LL",
    "ncclReduceScatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
    "ncclSend": "ncclDevKernel_SendRecv",
    "ncclRecv": "ncclDevKernel_SendRecv",
    "ncclAlltoAll": "ncclDevKernel_SendRecv",
}
WORLD, OTHER = 0xF000_0000_0000_0001, 17


def joined(*ranks: int, of: int, communicator: int = WORLD) -> Export:
    """Processes of one GPU each, that are these ranks of a communicator."""
    export = Export()
    for place, rank in enumerate(ranks):
        payload = {
            "NCCL communicator ID": communicator,
            "No. of ranks": of,
            "Rank": rank,
            "CUDA device": 0,
        }
        export.nccl("ncclCommInitRankConfig", 0, 10, payload, process=place + 1)
    return export


def call(export, function, start, size, kernel, *, communicator=WORLD, place=0, **more):
    """A call of NCCL of 10 ns and, unless it is in a group, the kernel that it launches."""
    payload = {"NCCL communicator ID": communicator, "Message size [bytes]": size, **more}
    at = {"process": place + 1}
    export.nccl(function, start, start + 10, payload, **at)
    if kernel:
        where = {"name": KERNELS[function], "device": place, **at}
        export.launch((start + 2, start + 4), kernel, **where)
    return export


def group(export, start, *sent, kernels, place=0):
    """A group of calls, (function, size, communicator, more), and the kernels it launches."""
    at = {"process": place + 1}
    export.nccl("ncclGroupStart", start, start + 1, **at)
    for number, (function, size, communicator, more) in enumerate(sent):
        begin = start + 20 * (number + 1)
        call(export, function, begin, size, None, communicator=communicator, place=place, **more)
    end = start + 20 * (len(sent) + 1)
    export.nccl("ncclGroupEnd", end, end + 20, **at)
    for number, (name, kernel) in enumerate(kernels):
        launch = (end + 2 + number, end + 3 + number)
        export.launch(launch, kernel, name=name, device=place, **at)
    return export


def test_an_all_reduce_of_two_ranks(tmp_path):
    """Rank 0 arrives at 1000 and waits until 3000 for rank 1; then 1 µs moves 100,000 bytes."""
    export = joined(0, 1, of=2)
    call(export, "ncclAllReduce", 100, 100_000, (1000, 4000))
    call(export, "ncclAllReduce", 100, 100_000, (3000, 4000), place=1)

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("device_id", "bytes", "wait_ns", "bus_bytes_per_s", "ranks", "communicator")
    assert rows(result, "collectives", *figures) == [
        (0, 100_000, 2000, 10**11, 2, "f000000000000001"),
        (1, 100_000, 0, 10**11, 2, "f000000000000001"),
    ]
    figures = ("kind", "bytes", "ranks", "calls", "total_ns", "median_ns", "bus_bytes_per_s")
    assert rows(result, "sizes", *figures) == [
        ("all-reduce", 100_000, 2, 2, 4000, 1000, 10**11),
    ]
    assert rows(result, "sizes", "link_pct") == [(pytest.approx(100 / 4.5),)]
    assert not result.notes


@pytest.mark.parametrize(
    ("function", "whole", "bus"),
    [
        ("ncclAllReduce", 1000, 1750),
        ("ncclAllGather", 8000, 7000),
        ("ncclReduceScatter", 8000, 7000),
        ("ncclAlltoAll", 8000, 7000),
    ],
)
def test_bus_bytes_as_nccl_tests_counts_them(tmp_path, function, whole, bus):
    """One of eight ranks is in the recording: waiting is unknown, and so is the link."""
    export = call(joined(5, of=8), function, 100, 1000, (1000, 2000))

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("bytes", "bus_bytes_per_s", "wait_ns", "ranks")
    assert rows(result, "collectives", *figures) == [(whole, bus * 10**6, None, 8)]
    assert rows(result, "sizes", "link_pct") == [(None,)]


def test_without_its_ranks_an_all_reduce_has_bytes_and_no_rate(tmp_path):
    result = ask(ANALYSIS, call(Export(), "ncclAllReduce", 100, 1000, (1000, 2000)), tmp_path)

    assert rows(result, "collectives", "bytes", "bus_bytes_per_s") == [(1000, None)]
    assert any("began after their communicator" in note for note in result.notes)


def test_messages_in_both_directions_count_once(tmp_path):
    export = joined(1, of=4)
    sent = [("ncclSend", 1000, WORLD, {"Peer rank": 2}), ("ncclRecv", 600, WORLD, {"Peer rank": 0})]
    group(export, 100, *sent, kernels=[(KERNELS["ncclSend"], (1000, 2000))])

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("kind", "bytes", "bus_bytes_per_s")
    assert rows(result, "collectives", *figures) == [("send-receive", 1000, 10**9)]


def test_messages_to_and_from_all_ranks_are_an_all_to_all(tmp_path):
    """What a rank sends itself is part of the buffers, and does not use the link."""
    export = joined(1, of=3)
    sent = [
        (function, 500, WORLD, {"Peer rank": peer})
        for peer in range(3)
        for function in ("ncclSend", "ncclRecv")
    ]
    group(export, 100, *sent, kernels=[(KERNELS["ncclSend"], (1000, 2000))])

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("kind", "bytes", "bus_bytes_per_s")
    assert rows(result, "collectives", *figures) == [("all-to-all", 1500, 10**9)]


def test_a_group_of_collectives_in_one_kernel(tmp_path):
    export = joined(0, of=2)
    gathered = [("ncclAllGather", size, WORLD, {}) for size in (100, 200, 700)]
    group(export, 100, *gathered, kernels=[(KERNELS["ncclAllGather"], (1000, 2000))])

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "collectives", "calls", "bytes") == [(1, 2000)]


def test_a_group_of_two_communicators_has_a_kernel_of_each(tmp_path):
    export = joined(0, of=2)
    sent = [("ncclAllReduce", 100, WORLD, {}), ("ncclAllReduce", 300, OTHER, {})]
    kernels = [(KERNELS["ncclAllReduce"], span) for span in ((1000, 2000), (2000, 3000))]
    group(export, 100, *sent, kernels=kernels)

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("bytes", "communicator", "ranks")
    assert sorted(rows(result, "collectives", *figures)) == [
        (100, "f000000000000001", 2),
        (300, f"{OTHER:016x}", None),
    ]


def test_a_split_of_a_group_that_cannot_be_known_is_left_unknown(tmp_path):
    export = joined(0, of=2)
    sent = [("ncclAllReduce", 100, WORLD, {})] * 3
    kernels = [(KERNELS["ncclAllReduce"], span) for span in ((1000, 2000), (2000, 3000))]
    group(export, 100, *sent, kernels=kernels)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "collectives", "bytes") == [(None,)]
    assert result.notes[0].startswith("The sizes of 2 of 2 collectives are unknown")


def test_calls_that_a_graph_captured_launch_nothing(tmp_path):
    """Only the last of three calls launched a kernel, and that has its size alone."""
    export = joined(0, of=2)
    for start in (100, 200):
        call(export, "ncclAllReduce", start, 10**6, None)
    call(export, "ncclAllReduce", 300, 500, (1000, 2000))
    export.graph_launch((400, 405), [(3000, 4000)], name=KERNELS["ncclAllReduce"])

    moved = transfers(export.load(tmp_path))

    assert moved.bytes.tolist() == [500, -1]


def test_communicators_keep_collectives_apart(tmp_path):
    """Two GPUs, alike in kinds and times, in communicators of their own."""
    export = Export()
    for place, communicator in enumerate((WORLD, OTHER)):
        for step in range(4):
            at = 10_000 * (step + 1)
            span = (at + 100 * place, at + 1000)
            call(export, "ncclAllReduce", at - 500, 8, span, communicator=communicator, place=place)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "collectives", "group", "wait_ns") == [(None, None)] * 2


def test_random_calls_and_groups_against_a_plain_loop(tmp_path):
    """Two threads that call alone and in (nested) groups; each launch has its own calls' bytes."""
    draw = random.Random(7)
    export, expected = joined(0, of=2), []
    for thread in (0, 1):
        time = 100 + 7 * thread
        for _ in range(60):
            sizes = [draw.randrange(1, 10**6) for _ in range(draw.choice((1, 1, 2, 5)))]
            nested = draw.choice((0, 1, 2)) if len(sizes) == 1 else draw.choice((1, 2))
            at = {"thread": thread}
            for _ in range(nested):
                export.nccl("ncclGroupStart", time, time + 1, **at)
                time += 2
            for size in sizes:
                payload = {"NCCL communicator ID": WORLD, "Message size [bytes]": size}
                export.nccl("ncclAllReduce", time, time + 10, payload, **at)
                launch = time + 3
                time += 11
            for _ in range(nested):
                export.nccl("ncclGroupEnd", time, time + 10, **at)
                launch = time + 3
                time += 11
            if draw.random() < 0.8:
                span = (time + 10**6, time + 10**6 + 3)
                name = KERNELS["ncclAllReduce"]
                export.launch((launch, launch + 1), span, name=name, stream=7 + thread, **at)
                expected.append((span[0], 7 + thread, sum(sizes)))
    moved = transfers(export.load(tmp_path))

    order = np.lexsort((moved.stream, moved.start_ns))
    assert moved.bytes[order].tolist() == [size for _, _, size in sorted(expected)]


@pytest.mark.parametrize("computes", [False, True])
@pytest.mark.parametrize("size", [10**5, 10**7])
def test_the_finding_names_size_and_bandwidth(tmp_path, size, computes):
    export = joined(0, of=2)
    for step in range(5):
        at = 10_000_000 * (step + 1)
        call(export, "ncclAllReduce", at - 500, size, (at, at + 5_000_000))
        if computes:
            export.launch((at + 5_000, at + 9_000), (at + 5_000_000, at + 10_000_000 - 1))
    remedy = "Overlap it with compute" if computes else "Exchange fewer bytes"
    remedy = "Exchange more per call" if size < 10**6 else remedy

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.evidence.values["message_bytes"] == size
    assert finding.evidence.values["bus_bytes_per_s"] == size * 200
    assert finding.action.startswith(remedy)
    assert ("verlap it with compute" in finding.action) == computes


@pytest.mark.parametrize("seed", range(12))
def test_overlap_saves_no_more_than_there_is_other_work(tmp_path, seed):
    """Exchanges of 2 to 5 ms, each behind 0 to 4 ms of other work, some of which hides them."""
    draw = np.random.default_rng(seed)
    export, at, exposed_ns, free_ns = joined(0, of=2), 10**6, 0, 0
    for _ in range(6):
        lasts, works = (int(draw.integers(2, 6)) * 10**6, int(draw.integers(0, 5)) * 10**6)
        works = works if seed % 3 else works // 400
        hidden = min(int(draw.integers(0, 2)) * 10**6, works)
        call(export, "ncclAllReduce", at - 500, 10**7, (at, at + lasts))
        if works:
            begin, where = at + lasts - hidden, {"stream": 8, "name": f"k{draw.integers(3)}"}
            export.launch((begin - 9_000, begin - 5_000), (begin, begin + works), **where)
        exposed_ns, free_ns = exposed_ns + lasts - hidden, free_ns + works - hidden
        at += lasts + works - hidden + 100_000

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    if free_ns * 50 < exposed_ns:
        assert "next to nothing to overlap" in finding.message
        assert finding.action.startswith("Exchange fewer bytes")
        assert finding.severity != "high"
        assert finding.edit is None
    else:
        assert finding.time_at_stake_ns <= min(exposed_ns, free_ns) * 1.001
        assert finding.action.startswith("Overlap it")
        assert ("Overlap saves" in finding.message or "overlap saves" in finding.message) == (
            free_ns < exposed_ns
        )


def test_the_call_tells_what_a_generic_kernel_runs(tmp_path):
    """All kernels of RCCL have one name, as have those of NCCL that share one."""
    export = joined(0, 1, of=2)
    for place in (0, 1):
        call(export, "ncclAllReduce", 100, 100_000, None, place=place)
        where = {"device": place, "process": place + 1, "name": "ncclDevKernel_Generic(args)"}
        export.launch((102, 104), (1000, 4000), **where)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sizes", "kind", "bytes", "calls") == [("all-reduce", 100_000, 2)]


@pytest.mark.parametrize("passes", [1, 8])
@pytest.mark.parametrize("ranks", [2, 64])
def test_a_wait_in_a_single_pass_promises_nothing(tmp_path, passes, ranks):
    """Six exchanges of one size, of which three wait for ranks that were not recorded."""
    export, at = joined(0, of=ranks), 20
    for number in range(passes):
        begin = at
        for place in range(6):
            end = at + 100 + (4_000_000 if place % 2 else 10_000)
            call(export, "ncclAllReduce", at, 8_192, (at + 100, end))
            export.launch((end + 10, end + 20), (end + 100, end + 900_000), name=f"layer_{place}")
            at = end + 1_000_000
        if passes > 1:
            export.range(f"step_{number}", begin, at)
    [finding] = ask(ANALYSIS, export, tmp_path).findings
    assert "most likely waiting for ranks that this recording does not hold" in finding.message
    assert "traceview report" in finding.action
    assert finding.action.startswith("Record several steps after a warm-up") is (passes == 1)
    assert finding.severity == ("medium" if passes == 1 else "high")
    assert bool(finding.time_at_stake_ns) is (passes > 1)

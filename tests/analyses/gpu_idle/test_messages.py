"""Idle time in calls of MPI, as tables of nsys or as ranges: no launches come late there."""

import numpy as np
import pytest

import traceview
from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

US = 1_000
CALLS = [
    *((None, "MPI_Sendrecv"), ("P2P", "MPI_Send"), ("COLLECTIVES", "MPI_Allreduce")),
    *(("START_WAIT", "MPI_Wait"), ("OTHER", "PMPI_Test")),
]
"""Tables of nsys, and calls; None is the range that an older one, or a wrapper of MPI, writes."""


def exchanging(table, call, seed=0, passes=120, kernels=True, thread=None, mpi=True):
    """Passes of a short kernel, its wait, and a message that copies a few bytes; a slow first one.

    With `mpi` False the same time passes in code that nothing names.
    """
    draw, export, at = np.random.default_rng(seed), Export(), 100 * US
    size, where = int(draw.integers(8, 8000)), {"thread": thread}
    for number in range(passes):
        took = 57_000 * US if number == 0 else int(draw.uniform(100, 200) * US)
        begin = at
        if kernels:
            export.launch((at, at + 4 * US), (at + 5 * US, at + 8 * US), name="pack", **where)
            export.sync("cudaStreamSynchronize", at + 5 * US, at + 10 * US, **where)
            begin = at + 11 * US
        if mpi:
            export.mpi_call(call, begin, at + took - 2 * US, table=table, **where)
        moves = at + took - 50 * US
        times = (moves, moves + 8 * US), (moves + 9 * US, moves + 11 * US)
        ends = {"kind": "D2H", "source": "device", "destination": "pinned"}
        export.copy(*times, bytes=size, api="cuMemcpyAsync", stream=13, **ends, **where)
        export.sync("cuStreamSynchronize", moves + 9 * US, moves + 12 * US, stream=13, **where)
        at += took
    return export


@pytest.mark.parametrize("thread", [None, 3])
@pytest.mark.parametrize(("table", "call"), CALLS)
def test_messages_are_no_late_launches(tmp_path, table, call, thread):
    report = traceview.analyze(exchanging(table, call, len(call), thread=thread).load(tmp_path))
    first = report.findings[0].finding
    assert f"in calls of MPI. Most of it was in {call}: 120 calls of 1" in first.message
    assert first.action.startswith("Send fewer and larger messages")
    # Nothing tells how much less a message could take.
    assert first.time_at_stake_ns == 0
    assert report.scoreboard.launch == "message-bound"
    assert report.verdict.limit == "communication"
    assert "in calls of MPI" in report.verdict.text
    once = next(each.message for each in report["gpu-idle"].findings if "warm-up" in each.message)
    assert f"Most of it was in {call}: 1 call of 57.0 ms." in once
    spare_ns = 0.3 * report.verdict.step_median_ns * 120
    others = [each.finding for each in report.findings if each.finding.severity != "info"]
    assert all(each.time_at_stake_ns < spare_ns for each in others)


@pytest.mark.parametrize("seed", range(3))
def test_of_copies_alone_the_calls_between_them_are_told(tmp_path, seed):
    messages = [
        each.message
        for each in ask(
            ANALYSIS, exchanging("P2P", "MPI_Recv", seed, kernels=False), tmp_path
        ).findings
    ]
    assert any("Most of it was in MPI_Recv: 120 calls" in message for message in messages)


@pytest.mark.parametrize("seed", range(3))
def test_without_calls_of_mpi_launches_are_late(tmp_path, seed):
    report = traceview.analyze(exchanging(None, "", seed, mpi=False).load(tmp_path))
    assert report.scoreboard.launch == "launch-bound"
    assert not any("MPI" in each.finding.message for each in report.findings)

"""Kernels that run both launched one by one and replayed by a CUDA graph."""

import random

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview import load
from traceview.traces.analyses.phases.analysis import ANALYSIS
from traceview.traces.analyses.phases.findings import replayed_sequences
from traceview.traces.facts.operations import operations

MS = 1_000_000
FIGURES = ("first_kernel", "kernels", "passes", "pass_ns", "replays", "replay_ns")


def eager(export, begin, names, every=100, **where):
    """A pass: a kernel of 10 ns each `every` ns."""
    for place, name in enumerate(names):
        at = begin + every * place
        export.launch((at - 60, at - 50), (at, at + 10), name=name, **where)


def replay(export, begin, names):
    """The same in one graph launch: a kernel of 10 ns each 20 ns."""
    nodes = [(begin + 20 * place, begin + 20 * place + 10) for place in range(len(names))]
    number = export._enqueued("cudaGraphLaunch_v10000", (begin - 60, begin - 50), 1, None)
    for node, (span, name) in enumerate(zip(nodes, names, strict=True), start=1):
        export.kernel_without_launch(span, name=name, correlation=number, graphNodeId=node)


def test_passes_of_the_same_kernels_are_compared(tmp_path):
    export, names = Export(), ["a", "b", "a", "c", "d"]
    eager(export, 1000, ["other", *names, *names])
    for number in range(3):
        replay(export, 5000 + 1000 * number, names)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "replays", *FIGURES) == [("a", 5, 2, 410, 3, 90)]
    assert rows(result, "replays", "kernel_ns", "ratio") == [(50, pytest.approx(410 / 90))]


@pytest.mark.parametrize(
    ("before", "after", "told"), [(2, 0, None), (4, 0, None), (9, 0, 9), (2, 3, 3)]
)
def test_passes_that_warm_a_graph_up_are_not_told_to_be_replayed(tmp_path, before, after, told):
    """An evaluation that ran once, was captured, and was replayed then was a high finding."""
    export, names = Export(), ["a", "b", "a", "c", "d"]
    for number in range(before):
        eager(export, 1000 * (number + 1), names)
    for number in range(3):
        replay(export, 50_000 + 1000 * number, names)
    for number in range(after):
        eager(export, 90_000 + 1000 * number, names)

    result = ask(ANALYSIS, export, tmp_path)

    values = [each.evidence.values for each in result.findings]
    found = [each["passes"] for each in values if "passes" in each]
    assert found == ([told] if told else [])


def test_other_kernels_orders_grids_and_processes_are_not(tmp_path):
    export, names = Export(), ["a", "b", "c", "d"]
    replay(export, 5000, names)
    eager(export, 10_000, ["a", "b", "d", "c"])
    eager(export, 20_000, ["a", "b", "c"])
    eager(export, 30_000, names, gridX=7)
    eager(export, 40_000, names, process=2)

    assert not replayed_sequences(export.load(tmp_path))


def test_random_sequences_against_a_plain_search(tmp_path):
    draw = random.Random(3)
    graph = [draw.choice("ab") for _ in range(5)]
    launched = [draw.choice("ab") for _ in range(300)]
    export = Export()
    replay(export, 5000, graph)
    eager(export, 10_000, launched)

    expected, place = [], 0
    while place + 5 <= len(launched):
        hit = launched[place : place + 5] == graph
        expected += [10_000 + 100 * place] if hit else []
        place += 5 if hit else 1
    trace = export.load(tmp_path)
    [found] = replayed_sequences(trace)

    assert len(expected) > 3
    assert operations(trace).start_ns[found.launched].tolist() == expected


def test_the_workload_of_graphs_finds_its_eager_steps(unpack):
    """Eight steps of 400 kernels each way; an eager one takes 3.9 ms by the steps' own figures."""
    trace = load(unpack("cuda_graphs_nodes"))

    result = ANALYSIS.run(trace)

    [row] = result.tables["replays"].to_pandas().itertuples()
    assert (row.kernels, row.passes, row.replays) == (400, 8, 8)
    assert 3.8 * MS < row.pass_ns < 4.0 * MS
    assert row.kernel_ns < row.replay_ns < 0.6 * MS
    [finding] = [each for each in result.findings if "kernels" in each.evidence.values]
    assert finding.action.startswith("Replay the graph")

"""The figures of the ranks of a recording: against the trace itself, and counted by hand."""

import lzma
import pickle

import numpy as np
import pytest

from tests.build import Export
from tests.places import DATA
from traceview import load
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.facts.collectives import transfers
from traceview.traces.facts.idle.gaps import busy
from traceview.traces.ranks.figures import ALL_REDUCE, KINDS
from traceview.traces.ranks.rank_figures import figures_of_ranks

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MS = 1_000_000


@pytest.fixture(scope="module", params=["ddp_late", "collectives"])
def trace(request, unpack):
    return load(unpack(request.param))


def test_each_gpu_of_a_recording_is_a_rank(trace):
    ranks = figures_of_ranks(trace)

    assert [each.name.rank for each in ranks] == [0, 1]
    assert [each.name.device_id for each in ranks] == [0, 1]
    moved = transfers(trace)
    for place, each in enumerate(ranks):
        own = moved.is_collective & (moved.device == place)
        assert each.collectives.start_ns.tolist() == moved.start_ns[own].tolist()
        named = [moved.kinds[kind] for kind in moved.kind[own].tolist()]
        found = [KINDS[kind] for kind in each.collectives.kind.tolist()]
        assert [{"send": "send-receive"}.get(kind, kind) for kind in named] == [
            {"send": "send-receive", "receive": "send-receive"}.get(kind, kind) for kind in found
        ]


def test_the_parts_of_a_step_add_up(trace):
    for each in figures_of_ranks(trace):
        steps = each.steps
        idle = steps.idle_ns.sum(axis=1)
        parts = steps.compute_ns + steps.exposed_ns + steps.copies_ns + idle
        assert parts.tolist() == steps.duration_ns.tolist()
        assert (steps.idle_ns >= 0).all()
        whole = each.compute_ns + each.exposed_ns + each.copies_ns + sum(each.idle_ns.values())
        assert whole == each.span_ns


def test_what_comes_before_a_collective_fills_the_time_since_the_last_end(trace):
    for place, each in enumerate(figures_of_ranks(trace)):
        found, covered = each.collectives, busy(trace)[place]
        ends = np.sort(found.end_ns)
        for row in range(0, len(found), 37):
            start = int(found.start_ns[row])
            earlier = ends[ends <= start]
            before = int(earlier[-1]) if len(earlier) else start
            spent = int(found.work_ns[row] + found.idle_ns[row].sum())
            running = (found.start_ns < start) & (found.end_ns > before)
            if not running.any():
                assert spent == start - before
            held = np.minimum(covered.end, start) - np.maximum(covered.start, before)
            assert found.idle_ns[row].sum() == start - before - held[held > 0].sum()


def test_figures_are_small_enough_to_send(trace):
    for each in figures_of_ranks(trace):
        sent = pickle.dumps(each)
        assert len(sent) < 400_000
        assert (
            pickle.loads(sent).collectives.start_ns.tolist() == each.collectives.start_ns.tolist()
        )


def two_steps(tmp_path):
    """Two steps of 10 ms: compute 0-4, all-reduce 3-6 under it, idle 6-8, compute 8-10."""
    export = Export()
    for step in range(2):
        at = 10 * MS * step
        export.range(f"step_{step}", at, at + 9 * MS)
        export.launch((at + 1, at + 2), (at + 10, at + 4 * MS), name="gelu")
        export.launch((at + 3, at + 4), (at + 3 * MS, at + 6 * MS), name=NCCL, stream=20)
        export.launch((at + 8 * MS - 10, at + 8 * MS - 5), (at + 8 * MS, at + 10 * MS), name="mm")
    return load(export.write(tmp_path / "rank_7.sqlite"))


def test_a_step_by_hand(tmp_path):
    [rank] = figures_of_ranks(two_steps(tmp_path))

    assert (rank.name.rank, rank.name.numbered) == (7, "file name")
    assert rank.steps.names == ("step_0", "step_1")
    assert rank.steps.number.tolist() == [0, 1]
    assert rank.steps.compute_ns[1] == 6 * MS - 10
    assert rank.steps.exposed_ns[1] == 2 * MS
    assert rank.steps.hidden_ns[1] == 1 * MS
    assert rank.steps.idle_ns[1, CAUSE_NAMES.index("launch-late")] == 2 * MS + 10
    collectives = rank.collectives
    assert collectives.kind.tolist() == [ALL_REDUCE] * 2
    assert collectives.exposed_ns.tolist() == [2 * MS] * 2
    assert collectives.step.tolist() == [0, 1]
    # From 6 to 13 ms: idle 6-8, compute 8-10, idle 10 ns, compute until the all-reduce.
    assert collectives.work_ns.tolist() == [0, 5 * MS - 10]
    assert collectives.idle_ns.sum(axis=1).tolist() == [0, 2 * MS + 10]


def test_a_process_with_a_few_copies_on_a_gpu_is_no_rank_there(tmp_path):
    export = Export()
    for device, process in ((0, 1), (1, 2)):
        at = {"device": device, "process": process}
        export.kernel_without_launch((0, 10 * MS), name="gelu", **at)
    export.kernel_without_launch((11 * MS, 11 * MS + 500), name="fill", device=0, process=2)

    ranks = figures_of_ranks(load(export.write(tmp_path / "two.sqlite")))

    assert [each.compute_ns for each in ranks] == [10 * MS, 10 * MS]


def test_the_pace_of_the_cpu_leaves_out_waits_for_the_gpu(tmp_path):
    """Steps of 10 ms: 6 ms blocked in a synchronization, and 0.9 of 1 ms in a launch that a full
    queue held back."""
    export = Export()
    for step in range(3):
        at = 10 * MS * step
        export.range(f"step_{step}", at, at + 10 * MS - 10)
        export.launch((at + 100, at + 200), (at + 300, at + 3 * MS), name="gelu")
        export.launch((at + MS, at + 2 * MS), (at + 3 * MS, at + 5 * MS), name="gelu")
        export.sync("cudaStreamSynchronize", at + 3 * MS, at + 9 * MS)
    [rank] = figures_of_ranks(load(export.write(tmp_path / "rank_0.sqlite")))

    assert rank.steps.cpu_ns.tolist()[1:] == [3_100_000, 3_100_000 - 10]


def test_the_line_of_a_sleep_comes_with_its_time_per_step(unpack_ranks):
    [rank] = figures_of_ranks(load(unpack_ranks("ddp_sleep.rank1")))

    place = next(each for each in rank.cpu_places if each.text == "data.py:24")
    assert place.what == "sleep"
    time = rank.cpu_place_ns[:, rank.cpu_places.index(place)]
    assert len(time) == len(rank.steps)
    # 12.5 ms in every third step, by samples.
    asleep = np.flatnonzero(time > 5 * MS)
    assert set(np.diff(asleep).tolist()) == {3}
    assert all(8 * MS < each < 16 * MS for each in time[asleep].tolist())


@pytest.fixture
def unpack_ranks(tmp_path):
    def unpacked(name: str):
        path = tmp_path / f"{name}.sqlite"
        path.write_bytes(lzma.decompress((DATA / "ranks" / f"{name}.sqlite.xz").read_bytes()))
        return path

    return unpacked

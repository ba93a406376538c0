"""What workloads/ promise of idle gaps and full queues, asked of their recordings on a GPU.

Each is a recording of the workload of that name. One that is not there yet skips.
"""

import numpy as np
import pytest

from tests.places import DATA
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.analyses import gpu_idle, launch_overhead, run_ahead
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.facts.ranges.ranges import attributed_operations, range_tree
from traceview.traces.trace.load import load


@pytest.fixture
def recording(unpack):
    def loaded(name):
        if not (DATA / f"{name}.sqlite.xz").exists():
            pytest.skip(f"{name}.sqlite.xz is not recorded yet: it needs a GPU")
        return load(unpack(name))

    return loaded


def table(trace, analysis, name):
    return list(analysis.ANALYSIS.compute(trace).tables[name].rows())


def idle_by_cause(trace):
    return {row["cause"]: row["idle_ns"] for row in table(trace, gpu_idle, "causes")}


@pytest.mark.parametrize("name", ["queue_full", "streams", "cuda_graphs", "cuda_graphs_nodes"])
def test_causes_add_up_to_the_idle_time(recording, name):
    trace = recording(name)
    idle = sum(row["idle_ns"] for row in table(trace, gpu_idle, "devices"))
    causes = idle_by_cause(trace)
    assert sum(causes.values()) == idle
    late = sum(row["idle_ns"] for row in table(trace, gpu_idle, "late"))
    assert late == causes.get("launch-late", 0)
    assert causes.get("unknown", 0) == 0
    assert all(row["evidence"] for row in table(trace, gpu_idle, "gaps"))


def test_a_full_queue_is_no_launch_overhead(recording):
    trace = recording("queue_full")
    (device,) = table(trace, run_ahead, "devices")
    assert device["verdict"] == "queue-full"
    (call,) = [
        row
        for row in table(trace, launch_overhead, "calls")
        if row["api"] == "cudaLaunchKernel" and row["calls"] > 4000
    ]
    # Some 6,000 launches of a few µs each cost tens of ms; before the full queue they stood longer.
    assert call["queue_full_ns"] > 3 * (call["total_ns"] - call["first_launch_ns"])
    assert call["queue_full_ns"] == device["queue_full_ns"]
    steady = {row["cause"]: row["steady_idle_ns"] for row in table(trace, gpu_idle, "causes")}
    assert steady.get("launch-late", 0) < 0.01 * device["queue_full_ns"]


def test_work_behind_copies_and_other_streams(recording):
    trace = recording("streams")
    steps = [row for row in table(trace, gpu_idle, "gaps") if row["range_path"].startswith("step_")]
    by_place = {}
    for row in steps:
        place = row["range_path"].partition("/")[2]
        by_place.setdefault((place, row["cause"]), []).append(row["evidence"])
    behind_copy = by_place["compute", "copy-wait"]
    assert any("waited for an event" in text and "H2D copy" in text for text in behind_copy)
    assert any("pageable memory" in text for text in by_place["pageable", "launch-late"])
    # The wait for the other stream is too short to be among the 100 longest gaps.
    found, tree = gaps(trace), range_tree(trace)
    path = attributed_operations(trace).path(tree)[found.after]
    joins = [
        row
        for row, number in enumerate(path.tolist())
        if number >= 0 and tree.paths[number].endswith("/join")
    ]
    behind_event = [row for row in joins if found.by_event[row]]
    assert len(behind_event) >= 5
    assert {CAUSE_NAMES[found.cause[row]] for row in behind_event} == {"dependency"}


@pytest.mark.parametrize("name", ["cuda_graphs", "cuda_graphs_nodes"])
def test_graphs(recording, name):
    trace = recording(name)
    late = table(trace, gpu_idle, "late")
    assert any(row["range_pattern"] == "eager_#" and row["steady_idle_ns"] > 0 for row in late)
    replays = [
        row for row in table(trace, gpu_idle, "gaps") if row["range_path"].startswith("replay_")
    ]
    launching = [row for row in replays if row["cause"] == "graph-launch"]
    assert launching
    assert {row["call"] for row in launching} == {"cudaGraphLaunch"}


@pytest.mark.parametrize("name", ["mnist", "fault_sleep", "accelerate_resnet", "nanogpt"])
def test_the_window_of_a_line_is_a_gap_in_which_the_cpu_was_there(name):
    """Of the samples of one thread in the window, at least half have the line in their stack."""
    trace = load(DATA / "foreign" / f"{name}.sqlite.xz")
    findings = gpu_idle.ANALYSIS.compute(trace).findings
    of_lines = [each for each in findings if each.subject.kind == "line"]
    assert of_lines
    samples, frames = trace.tables["python_samples"], trace.tables["python_frames"]
    for finding in of_lines:
        evidence = finding.evidence
        # The subject of a backward pass is the line of the forward pass that asks for it.
        here = frames.texts("file").isin([evidence.row["file"]])
        here &= frames["line"] == evidence.row["line"]
        at_line = np.isin(samples["stack"], frames["stack"][here])
        inside = (samples["time_ns"] >= evidence.start_ns) & (samples["time_ns"] < evidence.end_ns)
        share = [
            at_line[inside & (samples["thread"] == thread)].mean()
            for thread in np.unique(samples["thread"][inside])
        ]
        assert max(share) >= 0.5, finding.message

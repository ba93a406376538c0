"""Steps that the recorder added: used where the program marks none, in the right order."""

from tests.build import Export
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import steps, steps_source
from traceview.traces.trace.nsys.ranges import RANGE_PREFIX as PREFIX

STEP = 1_000


def training(count=5, *, added=True, kernels=True):
    """Steps of one kernel in forward and one in the optimizer, with the ranges added to them."""
    export = Export()
    for number in range(count):
        at = STEP * number
        if added:
            export = export.range(f"{PREFIX}step_{number}", at, at + 990)
            export = export.range(f"{PREFIX}forward Net", at + 100, at + 400)
            export = export.range(f"{PREFIX}optimizer", at + 700, at + 980)
        if kernels:
            export = export.launch(call=(at + 110, at + 120), kernel=(at + 130, at + 390), name="a")
            export = export.launch(call=(at + 710, at + 720), kernel=(at + 730, at + 970), name="b")
    return export


def names(trace):
    return steps(trace).names.decode().tolist()


def test_the_added_steps_count(tmp_path):
    trace = with_steps(training().load(tmp_path))
    assert steps_source(trace) == "added-ranges"
    assert names(trace) == [f"step_{number}" for number in range(5)]
    assert steps(trace).operations.tolist() == [2] * 5


def test_the_steps_of_the_program_come_first(tmp_path):
    export = training()
    for number in range(5):
        # As a loop marks them: across those that were added.
        at = STEP * number + 50
        export = export.range(f"iteration {number}", at, at + 960)
    trace = with_steps(export.load(tmp_path))
    assert steps_source(trace) == "user-ranges"
    assert names(trace) == [f"iteration {number}" for number in range(5)]
    kept = set(trace.ranges.texts("name").decode())
    assert "forward Net" in kept
    assert not {name for name in kept if name.startswith("step_")}


def test_epochs_of_the_program_hold_the_added_steps(tmp_path):
    export = training(6).range("epoch_0", 0, 2_995).range("epoch_1", 2_996, 6_000)
    trace = with_steps(export.load(tmp_path))
    assert steps_source(trace) == "added-ranges"
    assert len(names(trace)) == 6


def test_added_steps_come_before_those_of_a_profiler(tmp_path):
    export = training()
    for number in range(5):
        export = export.range(f"ProfilerStep#{number}", STEP * number, STEP * number + 995)
    trace = with_steps(export.load(tmp_path))
    assert steps_source(trace) == "added-ranges"
    assert names(trace) == [f"step_{number}" for number in range(5)]


def test_a_step_without_an_optimizer_or_an_end_is_none(tmp_path):
    export = training()
    export = export.range(f"{PREFIX}step_5", 5_000, 5_400)
    export = export.launch(call=(5_100, 5_110), kernel=(5_120, 5_130), name="evaluation")
    export = export.range(f"{PREFIX}step_5", 6_000, None)
    trace = with_steps(export.load(tmp_path))
    assert names(trace) == [f"step_{number}" for number in range(5)]


def test_labels_alone_are_no_steps(tmp_path):
    export = Export()
    for at in range(0, 5_000, 500):
        export = export.range(f"{PREFIX}forward Net", at, at + 400)
        export = export.launch(call=(at + 10, at + 20), kernel=(at + 30, at + 40), name="a")
    trace = export.load(tmp_path)
    assert len(steps(trace)) == 0
    assert steps_source(with_steps(trace)) in ("repetition", "none")


def test_ranks_keep_their_own_steps(tmp_path):
    export = training()
    # A process whose only step has no optimizer.
    export = export.range(f"{PREFIX}step_0", 0, 5_000, process=2)
    trace = with_steps(export.load(tmp_path))
    assert len(names(trace)) == 5

"""Steps that the recorder added: used where the program marks none, in the right order."""

from itertools import product

import pytest

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


def evaluated(epochs, trained, evaluated, layers, waits, step_ns=STEP):
    """Epochs of training steps, each followed by passes of a model that is only evaluated."""
    export, at = training(0), 0
    for number in range(epochs * trained):
        export.range(f"{PREFIX}step_{number}", at, at + step_ns - 10)
        export.range(f"{PREFIX}optimizer", at + 700, at + 980)
        for launch in (110, 310, 710):
            call = at + launch, at + launch + 10
            kernel = at + launch + 20, at + launch + 190
            export.launch(call=call, kernel=kernel, name=f"train_{launch}")
        at += step_ns
        if number % trained < trained - 1:
            continue
        for _ in range(evaluated):
            for layer in range(layers):
                begin = at + 50 * layer
                export.launch((begin, begin + 5), (begin + 10, begin + 45), name=f"layer_{layer}")
            at += 50 * layers
            if waits:
                export.sync("cudaStreamSynchronize_v3020", at, at + 20)
            at += 100
    return export


@pytest.mark.parametrize(
    ("epochs", "trained", "passes", "layers", "waits"),
    [*product((1, 3), (5, 8), (4, 9), (5, 12), (True, False))],
)
def test_evaluation_is_a_loop_of_its_own(tmp_path, epochs, trained, passes, layers, waits):
    trace = with_steps(evaluated(epochs, trained, passes, layers, waits).load(tmp_path))
    every = steps(trace)
    assert steps_source(trace) == "added-ranges"
    beside = every.series == every.series.max()
    of = [f"pass_{number}" for number in range(epochs * passes)]
    assert names(trace) == [f"step_{number}" for number in range(epochs * trained)] + of
    assert every.operations[beside].tolist() == [layers] * len(of)
    # No pass holds a training step.
    starts, ends = every.cpu_start_ns, every.cpu_end_ns
    for step in (~beside).nonzero()[0].tolist():
        assert not (beside & (starts < ends[step]) & (ends > starts[step])).any()


@pytest.mark.parametrize("passes", [4, 9])
@pytest.mark.parametrize(("step_ns", "loops"), [(STEP, 2), (10 * STEP, 2), (200 * STEP, 1)])
def test_passes_of_next_to_no_time_are_no_loop(tmp_path, step_ns, loops, passes):
    """Reads of results between epochs repeat, too."""
    trace = with_steps(evaluated(3, 8, passes, 5, True, step_ns).load(tmp_path))
    assert len(set(steps(trace).series.tolist())) == loops


def test_an_evaluation_now_and_then_is_no_loop(tmp_path):
    trace = with_steps(evaluated(3, 6, 1, 5, True).load(tmp_path))
    assert set(steps(trace).series.tolist()) == {0}


FORWARD = ("gemm", "gelu", "softmax")
BACKWARD = ("gemm_dgrad", "gelu_backward", "softmax_backward", "adam")


def replayed(eager, replays, kernels):
    """Eager steps, a capture, then replays of a graph of these kernels, each waited for."""
    export, at = training(0), 0
    for number in range(eager + 1):
        export.range(f"{PREFIX}step_{number}", at, at + 990)
        export.range(f"{PREFIX}optimizer", at + 700, at + 980)
        for place, name in enumerate(FORWARD + BACKWARD):
            begin = at + 130 * place
            if number < eager:
                export.launch((begin, begin + 10), (begin + 20, begin + 120), name=name)
        at += STEP
    for _ in range(replays):
        begin = at + 30
        spans = [(begin + 110 * place, begin + 110 * place + 100) for place in range(len(kernels))]
        export.graph_launch((at, at + 20), spans, names=kernels)
        at = spans[-1][1] + 30
        export.sync("cudaStreamSynchronize_v3020", begin, at - 10)
    return export


@pytest.mark.parametrize(("eager", "replays"), [*product((2, 3, 11), (6, 40))])
def test_eager_steps_before_a_capture_are_its_warm_up(tmp_path, eager, replays):
    trace = with_steps(replayed(eager, replays, FORWARD + BACKWARD).load(tmp_path))
    assert names(trace) == [f"step_{number}" for number in range(replays)]
    assert steps_source(trace) == "repetition"


@pytest.mark.parametrize(("eager", "replays"), [*product((5, 11), (6, 40))])
def test_training_before_a_model_is_served_from_graphs_stays(tmp_path, eager, replays):
    trace = with_steps(replayed(eager, replays, FORWARD).load(tmp_path))
    trained = [f"step_{number}" for number in range(eager + 1)]
    assert names(trace) == trained + [f"pass_{number}" for number in range(replays)]

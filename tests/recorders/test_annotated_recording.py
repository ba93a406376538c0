"""A torch program recorded for real: the ranges added to it are in the trace, in order."""

import importlib.util
import os
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import traceview
from tests.recorders.fake_nsys import traceview as run_traceview
from traceview.traces.facts.ranges.nesting import depths
from traceview.traces.facts.ranges.ranges import range_tree
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import steps
from traceview.traces.recorders.nsys import incompatibility, probe

LOOPS = Path(__file__).with_name("injected") / "torch_loops.py"

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(
        not importlib.util.find_spec("torch"),
        reason="torch is not installed: pip install 'traceview[workloads]'",
    ),
]


@pytest.fixture(scope="module")
def recorded(nsys, tmp_path_factory):
    try:
        if problem := incompatibility(version("nvtx"), probe(nsys)):
            pytest.skip(problem)
    except PackageNotFoundError:
        pytest.skip("nvtx is not installed: pip install 'nvtx<0.2.12'")
    folder = tmp_path_factory.mktemp("annotated")
    environment = {**os.environ, "TRACEVIEW_NSYS": str(nsys)}

    def record(mode, program):
        (folder / f"{mode}.py").write_text(f"{LOOPS.read_text()}\n{program}()\n")
        words = ("record", "--annotate", mode, "--backtrace", "none", f"{mode}.py")
        done = run_traceview(*words, cwd=folder, environment=environment)
        assert done.returncode == 0, done.stderr
        return traceview.load(folder / f"{mode}.sqlite")

    return record


def paths(trace):
    tree = range_tree(trace)
    return Counter(
        (str(name), int(depth))
        for name, depth in zip(
            trace.ranges.texts("name").take(tree.row).decode(), depths(tree.parent), strict=True
        )
    )


def test_steps_and_modules_are_recorded(recorded):
    trace = with_steps(recorded("modules", "evaluation"))
    assert set(trace.ranges.texts("domain").decode()) == {"traceview"}
    assert steps(trace).names.decode().tolist() == [f"step_{number}" for number in range(4)]
    found = paths(trace)
    for name in ("forward Net", "backward", "optimizer"):
        assert found[name, 1] == 4
    # The same modules in training, forward and backward, and in evaluation, outside the steps.
    assert found["h.0", 2] == 2 * found["h.0", 1] == 8
    assert found["h.1.a", 3] == 8
    assert not range_tree(trace).nesting.walked


def test_off_adds_nothing(recorded):
    # Of a model without an optimizer, whose import takes longest, `auto` has the forward passes.
    assert not len(recorded("off", "generation").recorded("ranges"))

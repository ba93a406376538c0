"""On every shipped recording the parts add up: kernels over ranges, gaps over causes, steps."""

from pathlib import Path

import pytest

from tests.conftest import GPU_RECORDINGS
from tests.oracles.brute_force_steps import Attributed
from tests.oracles.test_random_attribution import adds_up, attribution_agrees, steps_agree
from tests.places import DATA
from traceview.traces.analyses import steps as steps_analysis
from traceview.traces.analyses.gpu_idle import analysis as gpu_idle
from traceview.traces.analyses.kernel_share import analysis as kernel_share
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.facts.idle.step_parts import step_parts
from traceview.traces.facts.steps.steps import pace, steps
from traceview.traces.trace.load import load

RECORDINGS = sorted(path.name.removesuffix(".sqlite.xz") for path in DATA.glob("*.sqlite.xz"))
each = pytest.mark.parametrize("trace", RECORDINGS, indirect=True)


@pytest.fixture(scope="module")
def trace(request, unpack):
    """A recording with what was computed of it."""
    return load(unpack(request.param))


@each
def test_every_kernel_is_in_one_range_or_told_to_be_in_none(trace):
    if "kernels" not in trace.tables:
        pytest.skip("a recording of ranges alone")
    adds_up(trace)
    adds_up(trace.but(strict=True))


@each
def test_causes_add_up_to_the_idle_time(trace):
    if "kernels" not in trace.tables:
        pytest.skip("a recording of ranges alone")
    tables = gpu_idle.compute(trace).tables
    idle = dict(zip(tables["devices"]["device_id"], tables["devices"]["idle_ns"], strict=True))
    by_cause = dict.fromkeys(idle, 0)
    for device, idle_ns in zip(
        tables["causes"]["device_id"], tables["causes"]["idle_ns"], strict=True
    ):
        by_cause[device] += idle_ns
    assert by_cause == idle
    assert gaps(trace).idle_ns.sum() == sum(idle.values())


@each
def test_the_parts_of_each_step_are_its_time(trace):
    if "ranges" not in trace.tables:
        pytest.skip("a recording without ranges")
    found, parts, timed = steps(trace), step_parts(trace), pace(trace)
    assert parts.part_ns.sum(axis=1).tolist() == timed.duration_ns.tolist()
    assert (parts.part_ns >= 0).all()
    table = steps_analysis.compute(trace).tables["steps"]
    assert len(table) == len(found)
    assert len(set(table.cells("step"))) == len(table)


@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
@pytest.mark.parametrize("trace", GPU_RECORDINGS, indirect=True)
def test_as_by_brute_force(trace, strict):
    oracle = Attributed.of(Path(trace.path), strict=strict)
    attribution_agrees(trace.but(strict=True) if strict else trace, oracle)


def test_steps_of_a_real_loop_as_by_brute_force(unpack):
    steps_agree(load(unpack("mlp_sync")), Attributed.of(unpack("mlp_sync")))


def test_autograd_launches_most_of_the_backward_pass(unpack):
    """What a tool that only looks at the launching thread's own ranges loses."""
    usual = load(unpack("mlp_nosync"))
    share = {}
    for how, trace in (("usual", usual), ("strict", usual.but(strict=True))):
        summary = kernel_share.compute(trace).summary
        share[how] = summary["attributed_ns"] / summary["kernel_total_ns"]
        inferred = summary["inferred_ns"] / summary["kernel_total_ns"]
        assert inferred == (0 if how == "strict" else pytest.approx(0.66, abs=0.02))
    assert share["usual"] > 0.99
    assert share["strict"] < 0.35


@pytest.mark.parametrize(
    ("name", "warm_up"),
    [("mlp_sync", ["step_0"]), ("graph_nodes", ["step_0", "step_1", "step_2"])],
)
def test_warm_up_steps_of_real_loops(name, warm_up, unpack):
    result = steps_analysis.compute(load(unpack(name)))
    rows = list(result.tables["steps"].rows())
    assert [row["step"] for row in rows if row["kind"] == "warm-up"] == warm_up
    assert not [row for row in rows if row["kind"] == "outlier"]
    assert all(row["why"] for row in rows if row["kind"] == "warm-up")

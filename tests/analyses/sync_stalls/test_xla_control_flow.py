"""XLA reads on the CPU whether its loops go on: each wait is of a range, none of a mark."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.sync_stalls import ANALYSIS

LINE = ("train.py", 24, "fit")
TWO_LOOPS = ("hlo_op=while.3", "name=jit(f)/body,hlo_op=while.9")


def iterations(*operations, sampled=True):
    """Ten waits of 60 µs within each operation of XLA, with the GPU idle for 30 µs after each."""
    export, at = Export(), 0
    for operation in operations:
        begun = at
        for _ in range(10):
            export.launch((at, at + 2_000), (at + 5_000, at + 60_000))
            export.sync("cuStreamSynchronize", at + 3_000, at + 63_000)
            if sampled:
                export.python_sample(at + 20_000, LINE)
            at += 90_000
        export.range(f"Thunk:#{operation},unique_hlo_op_id=17#", begun, at)
    return export.launch((at, at + 2_000), (at + 5_000, at + 60_000))


def stalls(export, folder):
    return ask(ANALYSIS, export, folder).findings


def test_the_waits_of_one_sampled_line_are_one_finding_whatever_their_ranges(tmp_path):
    [finding] = stalls(iterations(*TWO_LOOPS), tmp_path)

    assert finding.subject.name == "train.py:24"
    assert finding.evidence.values["calls"] == 20


def test_without_samples_each_range_has_a_finding(tmp_path):
    found = stalls(iterations(*TWO_LOOPS, sampled=False), tmp_path)

    assert [finding.evidence.values["calls"] for finding in found] == [10, 10]


@pytest.mark.parametrize(
    ("operation", "remedy"),
    [
        ("hlo_op=while.3", "lax.fori_loop with constant bounds"),
        ("name=jit(step)/jvp(vmap())/while,hlo_op=while.12", "lax.fori_loop with constant bounds"),
        ("hlo_op=cond.5", "jnp.where"),
        ("hlo_op=gemm_fusion_dot.5", "Remove it if the CPU needs nothing"),
        # A range whose name says `while` without being one.
        ("name=jit(step)/while/body,hlo_op=loop_add_fusion", "Remove it if the CPU needs nothing"),
    ],
)
def test_the_remedy_is_that_of_the_operation_that_waits(operation, remedy, tmp_path):
    [finding] = stalls(iterations(operation), tmp_path)

    assert remedy in finding.action


def test_a_step_that_begins_within_the_loop_hides_nothing(tmp_path):
    export = iterations("hlo_op=while.3").range("step_0", 1_000, 899_000)

    [finding] = stalls(export, tmp_path)

    assert "lax.fori_loop with constant bounds" in finding.action

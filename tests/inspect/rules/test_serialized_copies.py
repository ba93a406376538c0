"""A loop that waits for the copy it has just started, and those that do not."""

import pytest

from tests.inspect.rules import findings_by
from tests.ptx.compiled_kernels import a_compiled
from tests.ptx.test_async_groups import COPY, LOOP, MMA
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.recompilations import Recompilations
from traceview.kernels.inspect.rules.shared_memory import serialized_copies
from traceview.kernels.toolchain.listings import code_of


def compiled_of(body, before="", num_stages=2):
    return a_compiled(LOOP.format(body=body, before=before), num_stages=num_stages)


def findings(body, before="", trials=None):
    compiled = compiled_of(body, before)
    kernel = KernelContext(compiled, code_of(compiled, sass=False, ptxas=False), trials=trials)
    return findings_by(serialized_copies, kernel)


def test_a_copy_that_nothing_overlaps_is_told():
    (finding,) = findings(f"{COPY} cp.async.wait_group 0; {MMA}")
    assert finding.message == (
        "The hottest loop waits at k.py:5 for cp.async copies that it has just started: "
        "nothing in the block overlaps them"
    )
    assert finding.action.startswith("Use more stages (num_stages)")
    assert finding.severity == "low"


@pytest.mark.parametrize(("wait", "helps"), [("1", True), ("0", False)])
def test_a_stage_more_is_told_only_where_recompiling_shows_that_it_helps(wait, helps):
    tried = []

    def recompile(change, *_):
        tried.append(change.num_stages)
        return compiled_of(f"cp.async.wait_group {wait}; {MMA} {COPY}", COPY * 2, 3)

    trials = Recompilations(recompile)
    (finding,) = findings(f"cp.async.wait_group 0; {MMA} {COPY}", COPY, trials)
    assert tried == [3]
    assert (finding.action == "Use num_stages=3, and measure it") is helps
    assert ("recompiled with num_stages=3" in finding.evidence.basis) is helps
    assert finding.action.startswith("Start the copy of the next tile before") is not helps


@pytest.mark.parametrize(
    "body",
    [
        f"cp.async.wait_group 0; {COPY} {MMA}",
        f"cp.async.wait_group 1; {MMA} {COPY}",
        MMA,
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; " + MMA,
    ],
    ids=["overlapped", "one ahead", "no copies", "a store"],
)
def test_others_are_not(body):
    assert findings(body, COPY * 2) == []

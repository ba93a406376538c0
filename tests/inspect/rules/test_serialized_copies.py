"""A loop that waits for the copy it has just started, and those that do not."""

import pytest

from tests.ptx.compiled_kernels import a_compiled
from tests.ptx.test_async_groups import COPY, LOOP, MMA
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.rules.serialized_copies import serialized_copies
from traceview.toolchain.listings import code_of


def findings(body, before=""):
    compiled = a_compiled(LOOP.format(body=body, before=before), num_stages=2)
    return list(
        serialized_copies(KernelContext(compiled, code_of(compiled, sass=False, ptxas=False)))
    )


def test_a_copy_that_nothing_overlaps_is_told():
    (finding,) = findings(f"{COPY} cp.async.wait_group 0; {MMA}")
    assert finding.message == (
        "The hottest loop waits at k.py:5 for the cp.async copies that it has just started: "
        "nothing overlaps them"
    )
    assert "num_stages=3" in finding.action
    assert finding.severity == "medium"


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

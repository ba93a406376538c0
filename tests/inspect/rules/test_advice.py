"""Remedies of one kernel hold together: what contradicts another, or makes the next report worse,
is not told."""

import pytest

from tests.inspect.retried import Retried, allow
from traceview.base.findings import Finding
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.inspect.recompilations import Outcome, Recompilations
from traceview.kernels.inspect.rules.remedies import Advice, Reconciliation, Remedy, merged


def advice(severity: str, *changes: Change) -> Advice:
    remedies = tuple(Remedy(f"use {change.description}", change) for change in changes)
    actions = " or ".join(remedy.action for remedy in remedies)
    return Advice(Finding(severity, "slow", actions), remedies, "Otherwise do this")


def test_changes_are_merged_unless_they_contradict():
    warps, tile = Change(num_warps=4), Change(constexprs=(("BLOCK", 64),), resizes=True)
    assert merged(warps, tile) == Change(constexprs=(("BLOCK", 64),), num_warps=4, resizes=True)
    assert merged(warps, Change(num_warps=16)) is None
    assert merged(tile, Change(constexprs=(("BLOCK", 128),))) is None
    both = merged(Change(divisible=("n",)), Change(divisible=("m", "n")))
    assert both == Change(divisible=("n", "m"))


@pytest.fixture
def settle(triton_cache, monkeypatch):
    """Settle advice on a real kernel, recompiled here; `worse` are findings by number of warps."""
    allow(triton_cache, monkeypatch)
    from tests.ptx.kernels.apart import copy_heads

    def settled(found, worse=None):
        retried = Retried(copy_heads, "*fp16:16, *fp16:16, 128", sass=False)
        compiled = retried.alone().compiled
        trials = Recompilations(retried._again(compiled))

        def inspect(outcome: Outcome):
            finding = (worse or {}).get(outcome.compiled.num_warps)
            return {"rule": [finding] if finding else []}

        return Reconciliation(compiled, trials, inspect).settle(found)

    return settled


def test_the_worst_finding_chooses_first(settle):
    low, high = advice("low", Change(num_warps=2)), advice("high", Change(num_warps=1))
    first, second = settle([low, high])
    assert second is high.finding
    assert first.action == "Otherwise do this"
    assert first.evidence.values["withdrawn"] == "num_warps=2 contradicts num_warps=1"
    assert first.evidence.basis.endswith("; num_warps=2 contradicts num_warps=1")


def test_an_alternative_that_holds_is_left(settle):
    two = advice("low", Change(num_warps=2), Change(num_stages=2))
    _, finding = settle([advice("high", Change(num_warps=1)), two])
    assert finding.action == "Use num_stages=2"


def test_what_makes_the_next_report_worse_is_not_told(settle):
    spilled = Finding("high", "it spills", "")
    medium = advice("medium", Change(num_warps=1), Change(num_warps=2))
    (finding,) = settle([medium], {1: spilled})
    assert finding.action == "Use num_warps=2"
    assert "with num_warps=1 the next report has: it spills" in finding.evidence.basis
    # What is there before the change is not brought by it, and less matters less.
    assert settle([medium], dict.fromkeys((1, 4), spilled)) == [medium.finding]
    assert settle([medium], {1: Finding("low", "a tail", "")}) == [medium.finding]


def test_what_only_tells_the_compiler_more_is_not_withdrawn(settle):
    padded = advice("low", Change(divisible=("x_ptr",)))
    assert settle([padded], {4: Finding("high", "it spills", "")}) == [padded.finding]

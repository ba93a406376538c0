"""A few of the mutants of `python -m tests.fuzz`, always the same ones."""

import os

import pytest

from tests.fuzz.mutants import MUTANTS
from tests.fuzz.trials import GOOD, trial

COUNT = 12


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each mutant runs in a fork")
@pytest.mark.parametrize("kind", sorted(MUTANTS))
def test_mutants_are_answered_or_refused(kind):
    results = {seed: trial(kind, seed) for seed in range(COUNT)}
    assert {seed: result for seed, result in results.items() if result not in GOOD} == {}

"""Pairs of recordings with one known change: the named cause moves most, and the parts sum."""

from __future__ import annotations

import tomllib

import pytest

from tests.places import REPOSITORY, TESTS
from traceview.comparison.decomposition import compare_runs
from traceview.comparison.extraction import figures_of
from traceview.trace.load import load

KEYS = tomllib.loads((TESTS / "comparison" / "keys.toml").read_text())


@pytest.mark.parametrize("name", KEYS)
def test_the_known_change_is_named_first(name):
    key = KEYS[name]
    before, after = (
        [figures_of(load(REPOSITORY / f"{key[side]}.sqlite.xz"))] for side in ("before", "after")
    )
    result = compare_runs(before, after)
    assert (result.delta_ns > 0) == key["slower"]
    assert sum(part.delta_ns for part in result.parts) == result.delta_ns
    largest = result.parts[0]
    assert f"{largest.kind}: {largest.name}" in key["largest"]
    assert largest.change == "vanished" or (largest.delta_ns > 0) == key["slower"]
    counts = {count.name: [count.before, count.after] for count in result.counts}
    assert {each: counts[each] for each in key["counts"]} == key["counts"]

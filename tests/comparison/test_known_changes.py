"""Pairs of recordings with one known change: the named cause moves most, and the parts sum."""

from __future__ import annotations

import lzma
import tomllib

import pytest

from tests.places import DATA, REPOSITORY, TESTS
from tests.recordings.test_shipped import PRIVATE
from traceview.traces.comparison.decomposition import compare_runs
from traceview.traces.comparison.run_figures import figures_of
from traceview.traces.trace.load import load

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
    assert set(key.get("places", ())) <= {part.place for part in result.parts}


def test_the_load_width_is_compared_exactly():
    key = KEYS["scalar"]
    widths = [
        [
            part.shape.load_bits
            for part in figures_of(load(REPOSITORY / f"{key[side]}.sqlite.xz")).parts
            if part.name == "gelu_kernel"
        ]
        for side in ("before", "after")
    ]
    assert widths == [[bits] for bits in key["load_bits"]]


@pytest.mark.parametrize(
    "path", sorted((DATA / "comparison").iterdir()), ids=lambda path: path.stem
)
def test_the_recordings_hold_no_environment_and_no_home(path):
    assert not PRIVATE.search(lzma.decompress(path.read_bytes()))

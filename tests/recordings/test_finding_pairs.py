"""Programs whose remedies the report's findings name: each works, and has an expectation."""

from __future__ import annotations

import random

import pytest

from benchmarks.error_rates.what_if_pairs import FOLDERS, HERE, program, versions

pytestmark = pytest.mark.slow

FOLDER = HERE / "findings"
PAIRS = FOLDERS["findings"]


def test_each_program_has_an_expectation():
    files = {path.stem for path in FOLDER.glob("*.py")} - {"parts"}
    assert files == PAIRS.keys()
    assert not PAIRS.keys() & FOLDERS["what_if"].keys()
    for name, pair in PAIRS.items():
        assert pair.keys() - {"held_back"} - versions(name).keys() == {
            *("program", "limit", "step_ms")
        }
        for version in versions(name).keys() - {"fault"}:
            assert pair[version].keys() == {"remedies", "what", "limit", "finding", "saved_pct"}


def test_a_third_of_the_programs_is_held_back():
    names = sorted(PAIRS)
    held_back = {name for name in names if PAIRS[name].get("held_back")}
    assert held_back == set(random.Random(42).sample(names, len(names) // 3))


@pytest.mark.parametrize("name", PAIRS)
def test_each_version_gives_the_same_result(name):
    pytest.importorskip("torch")
    module = program(name)
    results = {}
    for version, remedies in versions(name).items():
        step = module.build(remedies, "cpu")
        results[version] = [float(step()) for _ in range(2)]
    for result in results.values():
        # A vocabulary of another size has other weights.
        assert result == pytest.approx(results["fault"], rel=0.1 if "gpt2" in name else 2e-3)

"""workloads/sync_sites.py as recorded on a GPU: each line that waits is named, and none else."""

import lzma
from pathlib import Path

import pytest

from tests.places import DATA, REPOSITORY
from traceview.traces.analyses import sync_stalls
from traceview.traces.trace.load import load

RECORDING = DATA / "sync_sites.sqlite.xz"
WORKLOAD = REPOSITORY / "workloads" / "sync_sites.py"
STEPS = 8
# The comment behind each line, and what is called there.
WAITS = {
    "a number": "Tensor.item",
    "a whole tensor": "Tensor.cpu",
    "the truth of a tensor": "Tensor.__bool__",
    "how many there are": "Tensor.nonzero",
    "the upload of pageable memory": "Tensor.to",
    "everything": "torch.cuda.synchronize",
}


def places() -> dict[str, str]:
    """`sync_sites.py:34 in step` for each comment, from the program as it is."""
    lines = WORKLOAD.read_text().splitlines()
    found = {line.rpartition("  # ")[2]: number for number, line in enumerate(lines, start=1)}
    return {comment: f"sync_sites.py:{found[comment]} in step" for comment in WAITS}


def test_the_lines_are_in_the_program():
    assert len(set(places().values())) == len(WAITS)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    if not RECORDING.exists():
        pytest.skip(f"not recorded yet: traceview record {WORKLOAD.name} on a GPU")
    path = tmp_path_factory.mktemp("recording") / "sync_sites.sqlite"
    path.write_bytes(lzma.decompress(RECORDING.read_bytes()))
    return load(path)


@pytest.fixture(scope="module")
def sites(trace):
    rows = list(sync_stalls.compute(trace).tables["sites"].rows())
    return [{**row, "call_site": Path(row["call_site"] or "").name} for row in rows]


@pytest.mark.parametrize("comment", WAITS)
def test_each_line_is_named(sites, comment):
    waits = [row for row in sites if "Synchronize" in row["api"] or "Memcpy" in row["api"]]
    mine = [row for row in waits if row["call_site"] == places()[comment]]
    assert {row["hint"] for row in mine} == {WAITS[comment]}
    assert {row["range_path"] for row in mine} == {"step_#"}
    assert max(row["calls"] for row in mine) >= STEPS
    assert all(comment in row["source"] for row in mine)


def test_the_waits_of_the_steps_are_those_of_these_lines(sites):
    """What runs in a step and waits stands in one of the six lines."""
    inside = [
        row for row in sites if row["range_path"] == "step_#" and row["api"].endswith("Synchronize")
    ]
    named = [row for row in inside if row["call_site"] in places().values()]
    waited, known = (sum(row["wait_ns"] for row in rows) for rows in (inside, named))
    assert known >= 0.99 * waited
    idle, caused = (sum(row["idle_after_ns"] for row in rows) for rows in (inside, named))
    assert idle > 0
    assert caused >= 0.99 * idle


def test_the_marks_are_not_among_the_ranges(trace):
    assert len(trace.call_sites) >= len(WAITS) * STEPS
    names = {row["name"] for row in trace.ranges.rows()}
    assert {f"step_{number}" for number in range(STEPS)} <= names
    assert not [name for name in names if "sync_sites.py" in name]

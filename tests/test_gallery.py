"""The pages in reports/ say what their recordings say."""

import importlib.util
import json
import lzma
from pathlib import Path
from types import ModuleType

import pytest

from tests.test_shipped_recordings import PRIVATE

REPORTS = Path(__file__).parent.parent / "reports"
CASES = sorted(path.parent for path in REPORTS.glob("*/make.py"))

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture
def made_by():
    def load(case: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location("make", case / "make.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@each_case
def test_the_table_is_that_of_the_recordings(case, made_by):
    page = (case / "README.md").read_text()
    make = made_by(case)

    assert make.table() in page
    assert make.machine() in page


@each_case
def test_what_ships_is_scrubbed(case):
    for path in case.iterdir():
        data = path.read_bytes()
        assert not PRIVATE.search(lzma.decompress(data) if path.suffix == ".xz" else data), path


@each_case
def test_it_is_listed(case):
    assert f"({case.name}/README.md)" in (REPORTS / "README.md").read_text()


def test_printing_the_loss_drains_the_lead(made_by):
    """The `Expect:` line of workloads/mlp.py, on its own recordings."""
    make = made_by(REPORTS / "printing-the-loss")
    ahead, drained = (make.answers("large", run) for run in ("without", "with"))

    assert ahead["verdict"] == "gpu-bound"
    assert ahead["steps_ahead"] > 1
    assert ahead["leads_ns"][-1] > ahead["period_ns"]
    assert drained["verdict"] == "sync-drained"
    assert drained["steps_ahead"] == 0
    assert all(lead < 0 for lead in drained["leads_ns"])


def test_the_json_is_what_the_command_line_writes():
    told = json.loads((REPORTS / "printing-the-loss" / "large_with.json").read_text())

    assert told["schema_version"] == 1
    assert told["trace"]["gpus"][0]["name"] == "NVIDIA H200"

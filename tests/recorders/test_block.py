"""`with traceview.recording(...)`: blocks of a program, one program for all cases."""

import json
import os
import sys

import pytest

import traceview
from tests.headless.forked_python import run_script
from traceview.base.errors import OutputExistsError
from traceview.traces.trace.schema import OPERATORS

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

PROGRAM = """
import json, sys, warnings
import nvtx, torch, traceview

said = {}
def lines(x): return torch.nn.functional.linear(x, torch.ones(4, 4))

try:
    with traceview.recording("raised.sqlite") as path:
        said["path"] = str(path)
        with nvtx.annotate("mine", domain="program"):
            lines(torch.ones(2, 4))
        try:
            with traceview.recording("nested.sqlite"):
                said["nested"] = "ran"
        except traceview.TraceviewError as error:
            said["nested"] = str(error)
        lines(torch.ones(2, 4))
        raise KeyError("on purpose")
except KeyError as error:
    said["raised"] = str(error)

lines(torch.ones(2, 4))
with traceview.recording("second.sqlite", python_samples=True):
    with nvtx.annotate("other"):
        for _ in range(3):
            lines(torch.ones(2, 4))

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with traceview.recording("profiled.sqlite"):
        lines(torch.ones(2, 4))
        with torch.profiler.profile() as own:
            lines(torch.ones(2, 4))
    said["warnings"] = [[str(w.message), w.filename] for w in caught
                        if w.category is RuntimeWarning]
said["own events"] = len(own.events())
with torch.profiler.profile():
    try:
        with traceview.recording("inside.sqlite"):
            said["inside"] = "ran"
    except traceview.TraceviewError as error:
        said["inside"] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What the program said, and its folder."""
    pytest.importorskip("nvtx")
    folder = tmp_path_factory.mktemp("blocks")
    (folder / "program.py").write_text(PROGRAM)
    done = run_script([sys.executable, "program.py"], os.environ, folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


def own_ranges(trace):
    return [(r["name"], r["domain"]) for r in trace.ranges.rows() if r["domain"] != OPERATORS]


def linears(trace):
    return int(trace.ranges.texts("name").isin(["aten::linear"]).sum())


def test_a_block_that_raises_is_recorded(ran):
    said, folder = ran
    assert said["raised"] == "'on purpose'"
    assert said["path"] == "raised.sqlite"
    trace = traceview.load(folder / "raised.sqlite")
    assert own_ranges(trace) == [("mine", "program")]
    assert linears(trace) == 2
    assert trace.run["backend"] == "torch"


def test_a_nested_block_is_refused_and_the_outer_goes_on(ran):
    said, folder = ran
    assert "a profiler is running in this process already" in said["nested"]
    assert not (folder / "nested.sqlite").exists()


def test_blocks_one_after_the_other_are_apart(ran):
    _, folder = ran
    trace = traceview.load(folder / "second.sqlite")
    assert own_ranges(trace) == [("other", None)]
    assert linears(trace) == 3


def test_a_profiler_in_the_block_ends_its_recording_with_a_warning(ran):
    said, folder = ran
    (message, file) = said["warnings"][0]
    assert len(said["warnings"]) == 1
    assert "started torch.profiler itself" in message
    assert file.endswith("program.py")
    assert said["own events"] > 0
    assert linears(traceview.load(folder / "profiled.sqlite")) == 1


def test_a_block_inside_a_profiler_is_refused(ran):
    said, folder = ran
    assert "a profiler is running" in said["inside"]
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".traceview")]


def test_an_existing_file_is_kept(tmp_path):
    (tmp_path / "t.sqlite").write_text("mine")
    with pytest.raises(OutputExistsError), traceview.recording(tmp_path / "t.sqlite"):
        raise AssertionError
    assert (tmp_path / "t.sqlite").read_text() == "mine"

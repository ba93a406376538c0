"""Garbage collections and torch.compile: from the running program to the tables of a trace."""

import os
import subprocess
import sys
from pathlib import Path
from traceback import FrameSummary
from types import SimpleNamespace

import pytest

import traceview
from tests.build import DAY_NS, Export, process_id
from traceview.traces.recorders import nsys, recording
from traceview.traces.recorders.injected.traceview_injected import compilations, python_events
from traceview.traces.recorders.options import RecordOptions, environment
from traceview.traces.recorders.written_tables import write_python_events
from traceview.traces.trace.load import load

PROGRAM = """
import gc
import torch

kept = [[number] for number in range(300_000)]

@torch.compile(backend="eager", dynamic=False)
def step(x):
    y = x * 2
    value = y.sum().item()
    return helper(y, value)

def helper(y, value):
    return y + value

@torch.compile(backend="eager")
def scaled(x, n):
    return x * n

gc.disable()
for number in range(14):
    if number % 7 == 6:
        gc.collect()
    step(torch.ones(4 + number))
    scaled(torch.ones(4), f"{number}" == "3" or 0.5 + number)
"""
LINES = {text.strip(): number for number, text in enumerate(PROGRAM.splitlines(), 1)}


def recorded(folder, backend, program=PROGRAM):
    script = folder / "train.py"
    script.write_text(program)
    out = folder / f"{backend}.sqlite"
    recording.record([sys.executable, str(script)], out, backend=backend)
    events = list(load(out).recorded("python_events").rows())
    return [event for event in events if event["file"] == "train.py"]


def has_nsys():
    try:
        return nsys.find().defect is None
    except traceview.TraceviewError:
        return False


@pytest.fixture(
    scope="module",
    params=[
        "torch",
        pytest.param("nsys", marks=pytest.mark.skipif(not has_nsys(), reason="needs nsys")),
    ],
)
def events(request, tmp_path_factory):
    return recorded(tmp_path_factory.mktemp(request.param), request.param)


def of_kind(events, kind):
    return [event for event in events if event["kind"] == kind]


@pytest.mark.programs
def test_a_recompilation_has_its_function_time_and_guard(events):
    again = [event for event in of_kind(events, "recompilation") if event["line"] == 7]

    assert {event["function"] for event in again} == {"step"}
    assert again[0]["reason"] == "tensor 'x' size mismatch at index 0. expected 4, actual 5"
    assert all(event["end_ns"] > event["start_ns"] >= 0 for event in again)
    [first] = [event for event in of_kind(events, "compilation") if event["line"] == 7]
    assert first["end_ns"] <= again[0]["start_ns"]
    assert 1_000 <= first["guards_ns"] < 100_000_000


@pytest.mark.programs
def test_a_graph_break_has_its_line_and_reason(events):
    breaks = of_kind(events, "graph-break")

    assert {(event["line"], event["function"]) for event in breaks} == {
        (LINES["value = y.sum().item()"], "step")
    }
    assert "item" in breaks[0]["reason"]
    assert breaks[0]["source"] == "value = y.sum().item()"


@pytest.mark.programs
def test_code_that_is_compiled_too_often_runs_without(events):
    limits = of_kind(events, "compile-limit")

    assert {"step", "scaled"} & {event["function"] for event in limits}
    assert limits[0]["reason"].startswith(("recompile_limit: ", "cache_size_limit: "))


@pytest.mark.programs
def test_a_collection_has_the_line_that_asked_for_it(events):
    asked = [e for e in of_kind(events, "garbage-collection") if e["source"] == "gc.collect()"]

    assert [event["line"] for event in asked] == [LINES["gc.collect()"]] * 2
    assert all(event["end_ns"] - event["start_ns"] >= 1_000_000 for event in asked)
    assert asked[0]["reason"].startswith("generation 2, ")


@pytest.mark.programs
def test_a_program_that_compiles_nothing_imports_nothing_for_it(tmp_path):
    program = "import sys, torch; print(sorted(sys.modules))"
    options = RecordOptions(kernels=False, sync_sites=True, annotate="off")
    added = environment(options, tmp_path / "gathered")
    command = [sys.executable, "-c", program]
    plain, hooked = (
        {*eval(subprocess.run(command, env={**os.environ, **more}, capture_output=True).stdout)}
        for more in ({}, added)
    )

    assert not any(name.startswith("torch") for name in hooked - plain)
    assert "traceview_injected.compilations" not in hooked
    assert "traceview_injected.python_events" in hooked


COLLECTS = """
import gc, sys
from _thread import get_ident
from traceview_injected import python_events

class Watching:
    def find_spec(self, name, *_):
        imports.append((name, get_ident()))

gc.disable()
imports = []
sys.meta_path.insert(0, Watching())
python_events.install(sys.argv[1])
kept = [[number] for number in range(300_000)]
imports.clear()
gc.collect()
assert get_ident() not in {thread for _, thread in imports}, imports
"""


def test_a_collection_imports_nothing(tmp_path):
    # One import of torch in 120 failed with a KeyError: an import in a callback of the collector
    # breaks the import during which the collection ran.
    environment = {**os.environ, "PYTHONPATH": str(Path(python_events.__file__).parents[1])}
    command = [sys.executable, "-c", COLLECTS, str(tmp_path)]

    done = subprocess.run(command, env=environment, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    [events] = tmp_path.glob("*.events")
    assert events.read_text()


def collected(folder, monkeypatch, *, took_ns, generation=2):
    """The events of a collection that takes so long."""
    folder.mkdir()
    monkeypatch.setattr(python_events, "_folder", [str(folder)])
    monkeypatch.setattr(python_events, "perf_counter_ns", iter((1, 1 + took_ns)).__next__)
    watched = python_events._Collections()
    watched.changed("start", {})
    watched.changed("stop", {"generation": generation, "collected": 7})
    watched.write()
    return [path.read_text() for path in folder.glob("*.events")]


def test_only_long_collections_are_noted(tmp_path, monkeypatch):
    [noted] = collected(tmp_path / "long", monkeypatch, took_ns=2_000_000)
    assert noted.endswith("generation 2, 7 objects freed\n")
    assert not collected(tmp_path / "short", monkeypatch, took_ns=900_000)
    assert not collected(tmp_path / "young", monkeypatch, took_ns=2_000_000, generation=0)


INTERRUPTED = """
import gc, signal
kept = [[number] for number in range(2_000_000)]
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    gc.collect()
    for number in range(10_000_000):
        pass
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_during_a_collection_reaches_the_program(tmp_path):
    added = environment(RecordOptions(kernels=False, annotate="off"), tmp_path / "gathered")
    command = [sys.executable, "-c", INTERRUPTED]

    ended = subprocess.run(command, env={**os.environ, **added}, capture_output=True, text=True)

    assert (ended.stdout, ended.stderr) == ("interrupted\n", "")


class Old:
    """torch._dynamo.convert_frame as in 2.4: one reason function, another name of the limit."""

    def __init__(self):
        self._compile = self.compiles
        self.exceeds = False

    def compiles(self, code):
        self.get_and_maybe_log_recompilation_reason()
        if self.exceeds_cache_size_limit()[0]:
            raise Unsupported("cache_size_limit reached")
        return code

    def get_and_maybe_log_recompilation_reason(self):
        return ["___check_type_id(L['x'], 7)  # y = x + 1  # train.py:3 in f"]

    def exceeds_cache_size_limit(self):
        return self.exceeds, "cache_size_limit"


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("Data-dependent branching", "Data-dependent branching"),
        ("generic_jump TensorVariable()", "Data-dependent branching"),
        ("step_unsupported", ""),
        ("Tensor.item() call", "Tensor.item() call"),
    ],
)
def test_a_graph_break_is_of_the_function_with_the_line(monkeypatch, reason, told):
    frame = compilations._Frame()
    monkeypatch.setattr(compilations, "_now", SimpleNamespace(frame=frame))
    at = FrameSummary("/work/net.py", 23, "torch_dynamo_resume_in_forward_at_21", line="if x > 1:")

    compilations._keep_break(
        (SimpleNamespace(graph_break=True, reason=reason, user_stack=[at]), True)
    )

    assert frame.breaks == {("/work/net.py", 23): ("forward", "if x > 1:", told)}


Unsupported = type("Unsupported", (Exception,), {})


def test_hooks_fit_older_versions(tmp_path, monkeypatch):
    monkeypatch.setattr(python_events, "_folder", [str(tmp_path)])
    module = Old()
    compilations.wrap_frames(module)

    code = test_hooks_fit_older_versions.__code__
    assert module._compile(code) is code
    module.exceeds = True
    with pytest.raises(Unsupported):
        module._compile(code)

    [path] = tmp_path.glob("*.events")
    cells = [line.split("\t") for line in path.read_text().splitlines()]
    guard = "___check_type_id(L['x'], 7)"
    assert [(each[5], each[9]) for each in cells] == [
        ("recompilation", guard),
        ("compile-limit", f"cache_size_limit: {guard}"),
    ]


def test_an_error_of_ours_never_reaches_the_program(monkeypatch):
    monkeypatch.setattr(python_events, "_folder", [])
    module = Old()
    compilations.wrap_frames(module)

    assert module._compile("no code") == "no code"


def test_events_outside_the_recording_are_left_out_but_graph_breaks(tmp_path):
    raw = Export().launch((0, 10), (20, 30)).started(DAY_NS).write(tmp_path / "raw.sqlite")
    lines = [
        (-50, -40, "garbage-collection"),
        (-50, -50, "graph-break"),
        (5, 25, "garbage-collection"),
        (-10, 5, "compilation"),
    ]
    path = tmp_path / f"{process_id(1)}.events"
    texts = [
        f"{DAY_NS + start}\t{DAY_NS + end}\t{process_id(1)}\t3\t0\t{kind}\ttrain.py\tf\t\t\n"
        for start, end, kind in lines
    ]
    path.write_text("".join(texts) + "17\tcut o")

    write_python_events(raw, tmp_path)

    events = load(raw).recorded("python_events")
    assert [(r["start_ns"], r["end_ns"], r["kind"], r["source"]) for r in events.rows()] == [
        (0, 0, "graph-break", None),
        (0, 5, "compilation", None),
        (5, 25, "garbage-collection", None),
    ]


@pytest.mark.programs
def test_code_of_torch_is_named_by_the_line_that_calls_it(tmp_path):
    program = (
        "import torch\n"
        "linear = torch.compile(torch.nn.Linear(4, 4), backend='aot_eager', dynamic=False)\n"
        "for size in range(1, 5):\n"
        "    result = linear(torch.ones(size, 4))\n"
        "    result.sum().backward()\n"
    )
    events = recorded(tmp_path, "torch", program)

    again = of_kind(events, "recompilation")
    assert {(event["line"], event["source"]) for event in again} == {
        (4, "result = linear(torch.ones(size, 4))")
    }
    backward = of_kind(events, "backward-compilation")
    assert {(event["line"], event["source"]) for event in backward} == {
        (5, "result.sum().backward()")
    }


def test_a_collection_that_a_library_asks_for_has_the_programs_line_and_its_text(tmp_path):
    library = tmp_path / "site-packages" / "freeing.py"
    library.parent.mkdir()
    library.write_text("import gc\ndef free():\n    gc.collect()\n")
    program = "import sys\nsys.path.insert(0, 'site-packages')\nimport freeing\n"
    program += "kept = [[number] for number in range(300_000)]\nfreeing.free()  # now\n"
    (tmp_path / "train.py").write_text(program)
    injected = Path(python_events.__file__).parents[1]
    added = {"PYTHONPATH": str(injected), "TRACEVIEW_PYTHON_EVENTS": str(tmp_path)}
    command = [sys.executable, "train.py"]

    subprocess.run(command, cwd=tmp_path, env={**os.environ, **added}, check=True)

    [file] = tmp_path.glob(f"*{python_events.SUFFIX}")
    events = [line.split("\t") for line in file.read_text().splitlines()]
    named = [dict(zip(python_events.FIELDS, event, strict=True)) for event in events]
    asked = [(each["file"], each["line"], each["source"]) for each in named if each["source"]]
    assert asked == [("train.py", "5", "freeing.free() # now")]

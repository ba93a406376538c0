"""The ranges added to torch programs: which ones, in which order, and that nothing else changes."""

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.headless.forked_python import run_script
from traceview.traces.recorders import options as record_options
from traceview.traces.recorders.options import RecordOptions

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("torch") and importlib.util.find_spec("nvtx")),
    reason="torch or nvtx is not installed: pip install 'traceview[workloads]' 'nvtx<0.2.12'",
)

INJECTED = Path(record_options.__file__).parent / "injected"
FOLDER = Path(__file__).parent
# The nvtx package, telling what it opens and closes; the torch of this machine has no NVTX.
LISTENING = """
import itertools, os, runpy, sys, threading
import nvtx
numbers, names = itertools.count(), {}
def start_range(text, domain):
    number = next(numbers)
    names[number] = text
    print("open", domain, threading.get_ident(), text, flush=True)
    return number
def end_range(number):
    print("close", names.pop(number), flush=True)
nvtx.start_range, nvtx.end_range = start_range, end_range
loops = runpy.run_path(sys.argv[1])
# The first optimizer imports it; here once instead of in each of the processes below.
import torch._dynamo
for program in loops["PROGRAMS"]:
    # A process for each: importing torch takes seconds.
    print("program", program.__name__, flush=True)
    child = os.fork()
    if not child:
        program()
        print("left", sorted(names.values()), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
PREFIX = "traceview:range:"


def events(program: str, mode: str = "auto") -> list[str]:
    """What a program of torch_loops opens (`+name`) and closes (`-name`), and what it prints."""
    return of_all_programs(mode)[program]


@cache
def of_all_programs(mode: str) -> dict[str, list[str]]:
    with TemporaryDirectory() as folder:
        (script := Path(folder) / "listening.py").write_text(LISTENING)
        command = [sys.executable, str(script), str(FOLDER / "torch_loops.py")]
        done = run_script(command, environment(mode), folder=script.parent)
    assert done.returncode == 0, done.stderr
    programs: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("program "):
            lines = programs[line.removeprefix("program ")] = []
        else:
            lines.append(shortened(line))
    assert all(lines[-1].startswith("left ") for lines in programs.values()), done.stderr
    return programs


def environment(mode: str) -> dict[str, str]:
    added = {"PYTHONPATH": str(INJECTED), "TRACEVIEW_ANNOTATE": mode}
    kept = {name: value for name, value in os.environ.items() if "TRACEVIEW" not in name}
    return {**kept, **added}


def shortened(line: str) -> str:
    kind, *words = line.split(" ", 3)
    if kind == "open":
        assert words[0] == "traceview"
        return "+" + words[2].removeprefix(PREFIX)
    return line.replace("close " + PREFIX, "-").replace(PREFIX, "")


def opened(lines: list[str], but: tuple[str, ...] = ()) -> list[str]:
    names = [line.removeprefix("+") for line in lines if line.startswith("+")]
    return [name for name in names if name not in but]


def steps_with_parts(lines: list[str]) -> dict[str, list[str]]:
    """The parts opened in each step in which an optimizer worked."""
    parts: dict[str, list[str]] = {}
    name, inside = "", []
    for line in lines:
        if line.startswith("+step"):
            name, inside = line.removeprefix("+"), []
        elif line == f"-{name}" and "optimizer" in inside:
            parts[name] = inside
        elif line.startswith("+"):
            inside.append(line.removeprefix("+"))
    return parts


def test_a_step_and_its_parts():
    lines = events("plain")
    parts = ["data loading", "forward Net", "backward", "optimizer"]
    steps = steps_with_parts(lines)
    assert list(steps) == ["step_0", "step_1"]
    # The first one starts the iterator; what follows the optimizer is in the next step.
    assert steps["step_0"] == ["data loading", *parts]
    assert steps["step_1"] == ["zero_grad", *parts]
    assert lines[-1] == "left ['step_2']"


def test_parts_close_before_others_open():
    depth = {}
    for line in events("plain")[:-1]:
        depth[line[0]] = depth.get(line[0], 0) + 1
        assert 0 <= depth["+"] - depth.get("-", 0) <= 2


def test_modules_by_path():
    lines = events("plain", "modules")
    forward = lines[lines.index("+forward Net") : lines.index("-forward Net") + 1]
    blocks = [
        event
        for number in (0, 1)
        for event in (
            *(f"+h.{number}", f"+h.{number}.a", f"-h.{number}.a", f"+h.{number}.b"),
            *(f"-h.{number}.b", f"-h.{number}"),
        )
    ]
    assert forward == ["+forward Net", *blocks, "+out", "-out", "-forward Net"]


def test_steps_hold_all_that_the_optimizer_accumulates():
    steps = steps_with_parts(events("accumulation"))
    assert list(steps) == ["step_0", "step_1"]
    assert all(parts.count("backward") == 2 for parts in steps.values())


def test_loader_workers_add_nothing():
    lines = events("workers")
    assert opened(lines, ("zero_grad",)).count("data loading") == 4
    assert list(steps_with_parts(lines)) == ["step_0", "step_1"]


def test_evaluation_is_in_no_step():
    steps = steps_with_parts(events("evaluation"))
    assert list(steps) == ["step_0", "step_1", "step_2", "step_3"]
    assert all(parts.count("forward Net") == 1 for parts in steps.values())
    assert all("data loading" in parts for parts in steps.values())


def test_two_optimizers_share_a_step():
    steps = steps_with_parts(events("two_optimizers"))
    # The second optimizer is unknown in the first round, which counts as two steps.
    later = list(steps.values())[2:]
    assert [parts.count("optimizer") for parts in later] == [2, 2]


def test_an_exception_closes_the_range():
    lines = events("error_in_forward")
    at = lines.index("caught")
    assert lines[at - 2 : at] == ["+forward Net", "-forward Net"]
    assert list(steps_with_parts(lines)) == ["step_0", "step_1"]
    assert lines[-1] == "left ['step_2']"


def test_optimizers_that_work_during_backward():
    lines = events("optimizer_in_backward")
    assert len(steps_with_parts(lines)) >= 2
    assert opened(lines).count("backward") == 3


def test_a_checkpointed_block_is_computed_again_inside_backward():
    lines = events("checkpointed", "modules")
    backward = lines[lines.index("+backward") : lines.index("-backward")]
    assert "+h.0.a" in backward
    assert opened(lines).count("backward") == 1


def test_a_loop_on_another_thread():
    assert list(steps_with_parts(events("other_thread"))) == ["step_0", "step_1"]


def test_a_closure_works_inside_the_optimizer():
    lines = events("closure")
    inside = lines[lines.index("+optimizer") : lines.index("-optimizer")]
    assert {"+zero_grad", "+forward Net", "+backward"} <= set(inside)


def test_without_an_optimizer_there_are_no_steps():
    assert opened(events("generation")) == ["forward Net"] * 3


def test_a_program_that_calls_its_layers_one_by_one():
    lines = events("layer_by_layer")
    assert opened(lines).count("forward Linear") == 128
    assert "backward" in opened(lines)


def test_a_module_called_too_often_has_no_range():
    names = opened(events("recurrent", "modules"))
    assert names.count("forward Recurrent") == 2
    first = names[: names.index("forward Recurrent", 1)]
    assert first.count("cell") == 128
    assert "cell" not in names[len(first) :]


def test_a_compiled_model_is_named_by_its_own_class():
    assert "forward Net" in opened(events("wrapped"))


@pytest.mark.programs
def test_compile_export_and_pickle_see_no_difference():
    command = [sys.executable, str(FOLDER / "torch_compiled.py")]
    # All that `auto` wraps, and the modules inside. Here the hooks see torch.compile imported.
    ranges = environment("modules")
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=ranges, cwd=FOLDER, **options) as added:
        plain = run_script(command, environment(""), folder=FOLDER)
        out, errors = added.communicate()
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout.count("graph breaks") == 11
    assert added.returncode == 0, errors
    assert out == plain.stdout


def test_steps_call_cudas_profiler_api(tmp_path):
    """The calls of CUDA's runtime are stand-ins: there is no GPU here."""
    program = """
import torch
calls = []
class Runtime:
    cudaProfilerStart = staticmethod(lambda: calls.append("start"))
    cudaProfilerStop = staticmethod(lambda: calls.append("stop"))
torch.cuda.is_available, torch.cuda.synchronize = (lambda: True), (lambda: None)
torch.cuda.cudart = lambda: Runtime
class Nvtx:
    rangePushA = staticmethod(lambda text: calls.append(text.rstrip("0123456789")))
    rangePop = staticmethod(lambda: None)
torch._C._nvtx = Nvtx
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters())
for number in range(6):
    calls.append(number)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print(calls)
"""
    (tmp_path / "train.py").write_text(program)
    options = RecordOptions(annotate="auto", steps=(2, 4))
    added = record_options.environment(options, tmp_path / "gathered")
    command = [sys.executable, "train.py"]
    done = run_script(command, {**os.environ, **added}, folder=tmp_path)
    assert done.stdout == "[0, 1, 'start', 'traceview:clock:', 2, 3, 'stop', 4, 5]\n"

"""The marks of calls that can wait for the GPU: what they say, and that they disturb nothing."""

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.headless.forked_python import run_script
from tests.recorders.fake_nsys import traceview
from traceview.traces.recorders import options
from traceview.traces.recorders.injected.traceview_injected import sync_call_sites as sync_places
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.ranges import Mark, parsed

INJECTED = Path(options.__file__).parent / "injected"
USES = Path(__file__).with_name("torch_uses.py")
# A tensor that says of itself that it is on the GPU, and ranges that are printed.
PRETEND = """
import sys, types, torch
nvtx = types.SimpleNamespace()
nvtx.rangePushA = lambda text: print("push", text)
nvtx.rangePop = lambda: print("pop")
torch._C._nvtx = nvtx
class OnGpu(torch.Tensor):
    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl
def on_gpu(data):
    return torch.tensor(data).as_subclass(OnGpu)
"""

needs_torch = pytest.mark.skipif(
    not importlib.util.find_spec("torch"),
    reason="torch is not installed: pip install 'traceview[workloads]'",
)


def run(
    folder: Path,
    source: str,
    *arguments: str,
    marked: bool = True,
    name: str = "train.py",
    afresh: bool = False,
) -> list[str]:
    """The lines that a program prints, run with our folder on its path.

    A fork has PyTorch and torch.compile at hand, where `afresh` the program imports them itself.
    """
    (folder / name).parent.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(INJECTED)}
    environment.pop("TRACEVIEW_GATHER", None)
    if marked:
        environment["TRACEVIEW_SYNC_SITES"] = "1"
    command = [sys.executable, name, *arguments]
    if afresh:
        options = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
        done = subprocess.run(command, **options)
    else:
        done = run_script(command, environment, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def pushed(lines: list[str]) -> list[str]:
    assert lines.count("pop") == sum(line.startswith("push ") for line in lines)
    return [line.removeprefix("push traceview:sync:") for line in lines if line.startswith("push ")]


CALLS = {
    "x.item()": "Tensor.item",
    "x.tolist()": "Tensor.tolist",
    "x.cpu()": "Tensor.cpu",
    "x.to('cpu')": "Tensor.to",
    "x.to(device=torch.device('cpu'))": "Tensor.to",
    "x.to(host)": "Tensor.to",
    "host.copy_(x)": "Tensor.copy_",
    "x.copy_(host)": "Tensor.copy_",
    "bool(x)": "Tensor.__bool__",
    "x or 1": "Tensor.__bool__",
    "int(x)": "Tensor.__int__",
    "float(x)": "Tensor.__float__",
    "complex(x)": "Tensor.__complex__",
    "[1, 2, 3][n]": "Tensor.__index__",
    "x.nonzero()": "Tensor.nonzero",
    "torch.nonzero(x)": "torch.nonzero",
    "torch.where(x)": "torch.where",
    "torch.unique(x)": "torch.unique",
    "x.unique()": "torch.unique",
    "torch.unique_consecutive(x)": "torch.unique_consecutive",
    "torch.masked_select(x, x > 0)": "torch.masked_select",
    "x.repeat_interleave(n)": "Tensor.repeat_interleave",
    "x.__setitem__(mask, 1)": "Tensor.__setitem__",
    "x.__setitem__((..., [0]), 1)": "Tensor.__setitem__",
    "attempt(lambda: x.__setitem__(n, 1))": "Tensor.__setitem__",
    "x.__setitem__(0, host[0])": "Tensor.__setitem__",
    "torch.equal(x, x)": "torch.equal",
    "torch.allclose(x, x)": "torch.allclose",
    "on_gpu([1]).bincount()": "Tensor.bincount",
    "print(x)": "Tensor.__repr__",
    "f'{number}'": "Tensor.__format__",
    "attempt(lambda: torch.tensor([number, number]))": "torch.tensor",
    "torch.save(x, io.BytesIO())": "torch.save",
    "attempt(lambda: torch.tensor([1.0], device='cuda'))": "torch.tensor",
    "attempt(lambda: host.cuda())": "Tensor.cuda",
    "attempt(lambda: host.to('cuda:0', non_blocking=True))": "Tensor.to",
    "attempt(lambda: host.to(0))": "Tensor.to",
    "attempt(lambda: torch.cuda.synchronize())": "torch.cuda.synchronize",
}
QUIET = (
    "x + 1",
    "x[0]",
    "x[0:1]",
    "x[None, ..., 0]",
    "x[n], x[mask]",
    "x.to(torch.float64)",
    "x.copy_(x)",
    "x.repeat_interleave(2)",
    "torch.where(x > 0, x, x)",
    "host.item()",
    "host.cpu()",
    "host[host > 0]",
    "print(host)",
    "torch.tensor([1.0])",
    "x.__setitem__(0, 1.0)",
    "x.__setitem__(0, on_gpu(2.0))",
    "x.shape, x.dtype, len(x)",
)


@needs_torch
def test_each_call_that_can_wait_is_marked_with_its_line_and_no_other(tmp_path):
    prelude = f"{PRETEND}import io\nx, host = on_gpu([1.0]), torch.tensor([1.0])\n"
    prelude += "n, number, mask = on_gpu(1), on_gpu(1.0), on_gpu([True])\n"
    prelude += "def attempt(work):\n    try: work()\n    except Exception: pass\n"
    start = prelude.count("\n")
    lines = "".join(f"{call}\n" for call in CALLS)
    lines += "x, host, n = on_gpu([1.0]), torch.tensor([1.0]), on_gpu([0])\n"
    lines += "\n".join((*QUIET, "print('the end')"))
    printed = run(tmp_path, prelude + lines)
    marks = [parsed(text) for text in pushed(printed)]
    of_call = [
        Mark("train.py", start + number, "<lambda>" if "lambda" in call else "<module>", call, hint)
        for number, (call, hint) in enumerate(CALLS.items(), start=1)
    ]
    assert marks == of_call
    assert printed[-1] == "the end"


@needs_torch
def test_the_line_is_that_of_the_users_own_code(tmp_path):
    library = tmp_path / "site-packages" / "library"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("def read(x):\n    return x.item()\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "model.py").write_text(
        "class Model:\n    def loss(self, x):\n        def inner():\n            return float(x)\n"
        "        return inner()\n"
    )
    program = (
        f"{PRETEND}sys.path.insert(0, 'site-packages')\nimport json, library, threading\n"
        "from own.model import Model\nx = on_gpu([1.0])\n"
        "def step():\n    library.read(x)\n    Model().loss(x)\n    json.dumps(x, default=float)\n"
        "step()\nthreading.Thread(target=library.read, args=(x,)).start()\n"
    )
    texts = pushed(run(tmp_path, program))
    first = PRETEND.count("\n") + 6
    assert texts == [
        f"train.py:{first} in step: library.read(x) [Tensor.item]",
        "own/model.py:4 in inner: return float(x) [Tensor.__float__]",
        f"train.py:{first + 2} in step: json.dumps(x, default=float) [Tensor.__float__]",
        "library/__init__.py:2 in read: return x.item() [Tensor.item]",
    ]


@needs_torch
def test_an_error_passes_and_closes_the_range(tmp_path):
    program = (
        f"{PRETEND}x = on_gpu([1.0, 2.0])\ntry: x.item()\nexcept RuntimeError as e: print(e)\n"
    )
    lines = run(tmp_path, program)
    assert [line.split()[0] for line in lines[:2]] == ["push", "pop"]
    assert "cannot be converted to Scalar" in lines[2]


@needs_torch
def test_a_warning_in_a_marked_call_names_the_line_of_the_program(tmp_path):
    program = (
        "import warnings\n"
        "warnings.showwarning = lambda *told: print(told[2].rpartition('/')[2], told[3])\n"
        "x = on_gpu([1.0])\ndef step():\n    x.copy_(torch.tensor([1j]))\nstep()\n"
    )
    lines = run(tmp_path, PRETEND + program)
    assert f"train.py {PRETEND.count(chr(10)) + 5}" in lines
    assert not any("sync_marks" in line for line in lines)


@needs_torch
def test_marks_that_fail_leave_the_program_alone(tmp_path):
    broken = "def fail(text): raise OSError\nnvtx.rangePushA = fail\nprint(on_gpu(1.0).item())\n"
    assert run(tmp_path, PRETEND + broken) == ["1.0"]


@needs_torch
@pytest.mark.programs
def test_torch_behaves_as_without_the_marks_and_nobody_wraps_unasked(tmp_path):
    source = USES.read_text()
    # torch.compile notes the functions of PyTorch as it is imported: after ours took their place.
    with ThreadPoolExecutor() as beside:
        running = beside.submit(run, tmp_path, source, afresh=True)
        plain = run(tmp_path, source, marked=False)
        marked = running.result()
    assert (plain[-1], marked[-1]) == ("wrapped False", "wrapped True")
    assert len(plain) > 21
    assert marked[:-1] == plain[:-1]


CUPY = """
class ndarray:
    def get(self): return self.item()
    def item(self): return 1
    def __float__(self): return 1.0
def asnumpy(x): return x.get()
class cuda:
    class nvtx:
        RangePush = staticmethod(lambda text: print("push", text))
        RangePop = staticmethod(lambda: print("pop"))
    class Stream:
        def synchronize(self): pass
    class runtime: pass
"""


def test_cupys_calls_are_marked(tmp_path):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "cupy.py").write_text(CUPY)
    program = (
        "import sys\nsys.path.insert(0, 'site-packages')\nimport cupy\nx = cupy.ndarray()\n"
        "x.get()\ncupy.asnumpy(x)\nfloat(x)\ncupy.cuda.Stream().synchronize()\n"
    )
    assert pushed(run(tmp_path, program)) == [
        "train.py:5 in <module>: x.get() [cupy.ndarray.get]",
        "train.py:6 in <module>: cupy.asnumpy(x) [cupy.asnumpy]",
        "train.py:7 in <module>: float(x) [cupy.ndarray.__float__]",
        "train.py:8 in <module>: cupy.cuda.Stream().synchronize() [cupy.cuda.Stream.synchronize]",
    ]


def test_a_home_path_is_never_told(monkeypatch):
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setattr(sync_places, "_START_FOLDER", "/")
    monkeypatch.setattr(sys, "path", ["", "/home", "/home/alice/project"])
    assert sync_places.shown("/home/alice/project/own/train.py") == "own/train.py"
    assert sync_places.shown("/home/alice/elsewhere/train.py") == "elsewhere/train.py"
    assert sync_places.shown("/home/alice/v/site-packages/lib/x.py") == "lib/x.py"
    monkeypatch.setattr(sync_places, "_START_FOLDER", "/home/alice")
    assert sync_places.shown("/home/alice/train.py") == "train.py"


def test_a_mark_names_its_line_without_the_text_if_so_wanted(monkeypatch):
    monkeypatch.setattr(sync_places, "keeps_source", False)
    mark = parsed(sync_places.place("Tensor.item", sys._getframe()))
    function = "test_a_mark_names_its_line_without_the_text_if_so_wanted"
    assert mark[2:] == (function, "", "Tensor.item")
    assert mark.line


def test_odd_source_lines_stay_one_short_line():
    assert sync_places.bounded("  a\t=\n b\x00\x1b[31m", 50) == "a = b [31m"
    assert len(sync_places.bounded("x" * 5000, 120)) == 120
    assert sync_places.bounded("\udc80name", 50) == "?name"


@pytest.mark.programs
def test_a_mark_recorded_by_nsys_becomes_a_call_site(nsys, tmp_path):
    if not importlib.util.find_spec("nvtx"):
        pytest.skip("nvtx is not installed: pip install nvtx")
    (tmp_path / "site-packages").mkdir()
    bare = CUPY.replace("class nvtx:", "class other:")
    (tmp_path / "site-packages" / "cupy.py").write_text(bare)
    (tmp_path / "train.py").write_text(
        "import sys, nvtx\nsys.path.insert(0, 'site-packages')\nimport cupy\nx = cupy.ndarray()\n"
        "with nvtx.annotate('step_0'):\n    x.get()\n"
    )
    environment = {**os.environ, "TRACEVIEW_NSYS": str(nsys)}
    done = traceview("record", "train.py", cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    trace = load(tmp_path / "train.sqlite")
    (site,) = trace.call_sites.rows()
    assert (site["file"], site["line"], site["hint"]) == ("train.py", 6, "cupy.ndarray.get")
    assert site["source"] == "x.get()"
    assert [row["name"] for row in trace.ranges.rows()] == ["step_0"]

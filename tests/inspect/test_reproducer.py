"""The script of a launch runs by itself: compiled without a GPU, and in Triton's interpreter."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.inspect.targets.python_scripts import HEADER, needs_torch, needs_triton
from tests.ptx.compiled_kernels import a_compiled, a_report
from traceview.base.errors import InputError
from traceview.cli import run
from traceview.cli.ptx_answers import write_reproducer
from traceview.kernels.headless.worker.standalone import launch_of
from traceview.kernels.inspect.reproducer import reproducer
from traceview.kernels.inspect.target_report import PtxReport
from traceview.kernels.ptx.model import Argument

PROGRAM = """
import torch
from helpers import halved

STEP = tl.constexpr(2)

@triton.jit
def fill(x, y, bias, n, stride, BLOCK: tl.constexpr, TYPE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at * stride, mask=at < n, other=0.0)
    if bias is not None:
        value += tl.load(bias)
    tl.store(y + at, halved(value).to(TYPE) + STEP, mask=at < n)

x = torch.empty(1001, 4, device="cuda", dtype=torch.float16)
y = torch.empty(4001, device="cuda")[1:]
fill[(4,)](x[:, 1], y, None, 1001, x.stride(0), BLOCK=256, TYPE=tl.float32, num_warps=2)
"""
HELPERS = """
import triton

@triton.jit
def halved(value):
    return value / 2
"""


@pytest.mark.programs
@needs_triton
@needs_torch
def test_it_needs_nothing_of_the_program(tmp_path, capfd):
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "train.py").write_text(HEADER + PROGRAM)
    (folder / "helpers.py").write_text(HELPERS)
    path = tmp_path / "alone.py"
    line = ["ptx", str(folder / "train.py"), "--reproducer", str(path), "--json"]
    assert run(line) == 0
    assert run(line) == 1
    assert "alone.py exists" in capfd.readouterr().err
    text = path.read_text()
    assert re.search(r"'x': tensor\(memory\[.\], 2, 8004, torch.float16, \[1001\], \[4\]\)", text)
    assert re.search(r"'y': tensor\(memory\[.\], 4, 16004, torch.float32, \[4000\], \[1\]\)", text)
    assert "'TYPE': tl.float32" in text
    compiled = r"\d bytes of cubin|ran on NVIDIA .+"
    for option, end in (((), compiled), (("--interpret",), "ran in the interpreter")):
        done = subprocess.run(
            [sys.executable, str(path), *option], capture_output=True, text=True, cwd=tmp_path
        )
        assert re.search(rf"({end})$", done.stdout.strip()), done.stderr


IN_PLACE = """
import torch

@triton.jit(noinline=True)
def affine(value):
    return value * 2.0 + 1.0

@triton.jit(do_not_specialize_on_alignment=["x"])
def scale(x, y, part, none, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scaled = tl.load(x + at, mask=at < n) * 2.0 + affine(tl.load(y))
    tl.store(y + at, scaled, mask=at < n)

x = torch.randn(4096, device="cuda")
none = torch.empty(128, device="cuda").as_strided((0, 4), (128, 1))
options = {"num_warps": 8, "maxnreg": 32, "enable_fp_fusion": False, "launch_pdl": True}
scale[(4,)](x, x, x[5:], none, 4096, BLOCK=1024, **options)
"""
LAUNCH = """
import json, runpy, sys
names = runpy.run_path(sys.argv[1], run_name="alone")
given = names["arguments"]("cpu")
x = given["x"].data_ptr()
moved = [given[name].data_ptr() - x for name in ("y", "part")]
print(json.dumps([x % 16, moved, given["none"].shape, names["compile_only"]().asm["ptx"]]))
"""


@pytest.mark.programs
@needs_triton
@needs_torch
def test_the_launch_is_that_of_the_program(tmp_path):
    """Options, what Triton is told of the kernel, alignment, and memory that arguments share."""
    (tmp_path / "train.py").write_text(HEADER + IN_PLACE)
    path = tmp_path / "alone.py"
    assert run(["ptx", str(tmp_path / "train.py"), "--reproducer", str(path), "--json"]) == 0
    text = path.read_text()
    assert "@triton.jit(noinline=True)" in text
    assert "@triton.jit(do_not_specialize_on_alignment=['x'])" in text
    options = "'num_warps': 8, 'num_stages': 3, 'maxnreg': 32, 'enable_fp_fusion': False"
    assert f"{{{options}, 'launch_pdl': True}}" in text
    line = [sys.executable, "-c", LAUNCH, str(path)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    rest, moved, shape, ptx = json.loads(done.stdout)
    assert (rest, moved, shape) == (0, [0, 20], [0, 4])
    assert ".maxnreg 32" in ptx
    assert "fma.rn.f32" not in ptx
    interpreted = [sys.executable, str(path), "--interpret"]
    done = subprocess.run(interpreted, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "scale ran in the interpreter\n", done.stderr


def test_what_cannot_be_reproduced():
    with pytest.raises(InputError, match="no launch of a kernel is known"):
        reproducer([a_compiled()], "out.py")
    launch = {"source": "", "arguments": {"pair": {"unknown": "a tuple"}}}
    with pytest.raises(InputError, match="takes a tuple as pair, which is not reproduced"):
        reproducer([a_compiled(launch=launch)], "out.py")


# Kernels that store 3 if all that they read has come along, by what they read of their module.
READS = {
    "a type": ("TYPE = tl.float16", "tl.store(y, tl.full((), 3, TYPE))"),
    "a constexpr": ("K = tl.constexpr(3)", "tl.store(y, K)"),
    "a constexpr type": ("T = tl.constexpr(tl.float32)", "tl.store(y, tl.full((), 3, T))"),
    "infinity": ('TOP = tl.constexpr(float("inf"))', "tl.store(y, tl.where(TOP > 9, 3, 0))"),
    "a tuple": ("PAIR = tl.constexpr((1, 2))", "tl.store(y, PAIR[0] + PAIR[1])"),
    "a function of Triton": ("from triton.language import cdiv as up", "tl.store(y, up(9, 4))"),
    "another name of a module": (
        "import triton.language as T",
        "T.store(y, T.full((), 3, T.int32))",
    ),
    "a helper": ("from helpers import one as uno", "tl.store(y, uno() + 2)"),
    "a helper's module": ("import helpers", "tl.store(y, helpers.one() + helpers.TWO)"),
    "a constexpr function": (
        "@triton.constexpr_function\ndef three():\n    return 3",
        "N: tl.constexpr = three()\n    tl.store(y, N)",
    ),
}
HELPED = """
import triton
import triton.language as tl

TWO = tl.constexpr(2)
ONE = tl.constexpr(1)

@triton.jit
def one():
    return ONE
"""
RUN = """
import runpy, sys
for path in sys.argv[1:]:
    names = runpy.run_path(path, run_name="alone")
    arguments = names["arguments"]("cpu")
    names["k"][names["GRID"]](**arguments, **names["OPTIONS"])
    print(arguments["y"][0].item())
"""


def launched(folder, name, head, body, default="3"):
    """The launch of a kernel of a module of its own, as a worker describes it."""
    path = folder / f"{name}.py"
    begin = f"@triton.jit(do_not_specialize=['n'])\ndef k(y, n, D: tl.constexpr = {default}):"
    path.write_text(f"{HEADER}{head}\n\n{begin}\n    {body}\n")
    spec = importlib.util.spec_from_file_location(f"program_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    signature = {"y": "*fp32", "n": "i32", "D": "constexpr"}
    source = SimpleNamespace(fn=module.k, signature=signature, constants={(2,): 3})
    tensor = importlib.import_module("torch").zeros(4)
    arguments = tuple(Argument(name, type_) for name, type_ in signature.items())
    launch = launch_of(source, [tensor, 7, 3], {})
    return a_compiled(name="k", launch=launch, arguments=arguments)


@pytest.fixture
def program(tmp_path, monkeypatch):
    (tmp_path / "helpers.py").write_text(HELPED)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [n for n in sys.modules if n == "helpers" or n.startswith("program_")]:
        del sys.modules[name]


@needs_triton
@needs_torch
def test_what_a_kernel_reads_comes_along(program, tmp_path_factory):
    alone, paths = tmp_path_factory.mktemp("alone"), []
    for number, (head, body) in enumerate(READS.values()):
        kernel = launched(program, number, f"D = 3\n{head}", body, "D")
        paths.append(alone / f"{number}.py")
        paths[-1].write_text(reproducer([kernel], paths[-1].name))
        assert "@triton.jit(do_not_specialize=['n'])" in paths[-1].read_text()
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, paths)],
        capture_output=True,
        text=True,
        cwd=alone,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    )
    results = dict(zip(READS, done.stdout.split(), strict=False))
    assert results == dict.fromkeys(READS, "3.0"), done.stderr


@needs_triton
@needs_torch
@pytest.mark.parametrize(
    ("head", "body", "what"),
    [
        (
            "import enum\nclass Way(enum.Enum):\n    UP = 1\nWAY = Way.UP",
            "x = WAY",
            "reads WAY, a Way",
        ),
        (
            "import helpers\nONE = tl.constexpr(5)",
            "tl.store(y, helpers.one() + ONE)",
            "needs two values of the name ONE",
        ),
    ],
)
def test_what_cannot_come_along_is_named(program, head, body, what):
    with pytest.raises(InputError, match=f"k {what}, which is not reproduced"):
        reproducer([launched(program, "odd", head, body)], "out.py")


@pytest.mark.parametrize(
    "target", ["{folder}/train.py", "train", "train:fill", "package.train:fill"]
)
def test_an_existing_file_is_kept(target, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(HEADER + PROGRAM)
    (tmp_path / "out.py").write_text("mine")
    assert run(["ptx", target.format(folder=tmp_path), "--reproducer", "out.py"]) == 1
    assert "out.py exists already" in capsys.readouterr().err
    assert (tmp_path / "out.py").read_text() == "mine"


def test_the_source_of_a_kernel_is_not_replaced(tmp_path):
    kernel = a_report(compiled=a_compiled(source_file=str(tmp_path / "train.py")))
    with pytest.raises(InputError, match="has the source of a kernel"):
        write_reproducer(PtxReport("train:k", (kernel,), ()), tmp_path / "train.py")

"""A kernel inside a package, whose neighbours cannot be imported here, compiles as it is called."""

import importlib.util

import pytest

from traceview.base.errors import InputError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.python_targets import compile_python

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"needs {name}")
    for name in ("torch", "triton")
]

GELU = """\
import triton
import triton.language as tl
import yaml_that_is_missing as yaml
from loguru_that_is_missing import logger
from ops import runtime
from .sizes import BLOCK
from ._extension import launch
try:
    import optional_that_is_missing
    HAS_OPTIONAL = True
except ImportError:
    HAS_OPTIONAL = False

@logger.catch
def unused(): ...

@triton.jit
def scale(x_ptr, y_ptr, n, FAST: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * 2, mask=offsets < n)

def run(x):
    n = x.numel()
    y = x.new_empty(n)
    scale[(triton.cdiv(n, BLOCK),)](x, y, n, HAS_OPTIONAL, BLOCK=BLOCK, num_warps=8)
    return y
"""


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "ops"
    (folder / "act").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemError('the whole project')\n")
    (folder / "runtime.py").write_text("import torch\ntorch.cuda.Stream()\n")
    (folder / "act" / "__init__.py").write_text("from .gelu import run\n")
    (folder / "act" / "sizes.py").write_text("BLOCK = 2048\n")
    (folder / "act" / "_extension.py").write_text("raise OSError('libcublas.so.12')\n")
    (folder / "act" / "gelu.py").write_text(GELU)
    return tmp_path


def test_a_kernel_in_a_package_gets_the_arguments_of_its_call(package):
    notes = []
    (kernel,) = compile_python(str(package / "ops/act/gelu.py"), note=notes.append)
    assert (kernel.how, kernel.num_warps) == ("called", 8)
    values = {a.name: a.value for a in kernel.arguments if a.type == "constexpr"}
    assert values == {"FAST": False, "BLOCK": 2048}
    assert "ld.global.v4.b32" in kernel.ptx
    stood_in = "not installed, and stood in for: yaml_that_is_missing, loguru_that_is_missing"
    assert stood_in in notes
    assert any("ops.act._extension (OSError: libcublas.so.12)" in note for note in notes)
    assert any("gelu.py:26" in note for note in kernel.notes)


def test_a_module_is_found_without_running_the_packages_above_it(package, monkeypatch):
    monkeypatch.chdir(package)
    (kernel,) = compile_python("ops.act.gelu:scale")
    assert kernel.name == "scale"


def test_a_script_that_fails_for_a_missing_package_says_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import yaml_that_is_missing as yaml\nn = int(yaml.safe_load('1'))\n")
    with pytest.raises(InputError, match="imports yaml_that_is_missing, which is not installed"):
        compile_python(str(script), CompileOptions())


WITHOUT_TORCH = """
from importlib.machinery import PathFinder

found = PathFinder.find_spec

def find_spec(name, *rest):
    return None if name == "torch" else found(name, *rest)

PathFinder.find_spec = find_spec
"""
SOFTMAX = """
import torch, triton
import triton.language as tl

@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    e = tl.exp(tl.load(x + at, mask=at < n, other=-1e9))
    tl.store(y + at, e / tl.sum(e, axis=0), mask=at < n)

rows, columns = torch.randn(64, 700, device="cuda").shape
"""


def test_without_torch_the_error_names_it_and_the_ways_on(tmp_path, monkeypatch):
    """Not the error of what stood in for torch, which says nothing to the user."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = tmp_path / "softmax.py"
    script.write_text(SOFTMAX)
    with pytest.raises(InputError) as caught:
        compile_python(str(script), CompileOptions())
    assert caught.value.what == "softmax.py imports torch, which is not installed"
    assert "(the CPU build is enough)" in caught.value.remedy
    assert "add --guess to compile its kernels" in caught.value.remedy
    (kernel,) = compile_python(str(script), CompileOptions(guess=True))
    assert kernel.how == "guessed"


DERIVED = """\
import triton
import triton.language as tl
from places_that_are_missing import cache_folder
from tracing_that_is_missing import Client, trace

FOLDER = cache_folder("kernels") / "tuned" + ".json"


class Recording(Client):
    def __init__(self, place):
        super().__init__(place, depth=2)


recording = Recording(FOLDER)

@trace(client=recording)
@triton.jit
def double(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) * 2)
"""


def test_classes_and_paths_of_missing_modules(tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/__init__.py").touch()
    (tmp_path / "ops/double.py").write_text(DERIVED)
    (kernel,) = compile_python(str(tmp_path / "ops/double.py"), CompileOptions(kernel="double"))
    assert kernel.how == "guessed"

"""Sizes and types that asserts, tests and defaults of a project show, as they are written."""

import ast

import pytest

from tests.headless.project.test_launch_arguments import KERNEL, arguments
from traceview.kernels.headless.project.assumed_tensor import AssumedSize
from traceview.kernels.headless.project.call_sites import call_sites, calls_elsewhere, default_of
from traceview.kernels.headless.project.conditions import allowed_sizes
from traceview.kernels.headless.project.launch_arguments import launch_arguments

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

# What a wrapper asserts of a size that is 1024 otherwise, and the size that is assumed then.
ASSERTED = {
    "{0} <= 256": 256,
    "{0} < 256": 128,
    "256 >= {0}": 256,
    "16 <= {0} <= 128": 128,
    "{0} % 128 == 0 and {0} <= 512": 512,
    "{0} == 80": 80,
    "{0} in (32, 64)": 64,
    "{0} >= 2048": 2048,
    "not {0} > 512": 512,
    "{0} > 0": 1024,
    "{0} % 3 == 1": 1024,
    "other < 256": 1024,
    "rows * {0} * {0} <= 65536": 32,
}
FORMS = ["assert {}, 'no'", "if not ({}):\n        raise ValueError"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("condition", "size"), ASSERTED.items())
@pytest.mark.parametrize("name", ["width", "inner"])
def test_a_size_that_a_wrapper_takes(tmp_path, form, condition, size, name):
    found = arguments(
        tmp_path,
        f"def run(x, y, other):\n    rows, {name} = x.shape\n"
        f"    {form.format(condition.format(name))}\n"
        f"    kernel[(1,)](x, y, None, 1, {name}, BLOCK={name})\n",
    )
    assert found.values["BLOCK"] == size
    assert isinstance(found.values["BLOCK"], AssumedSize)


@pytest.mark.parametrize("written", ["x.shape[1]", "x.size(1)", "x.shape[-1]"])
@pytest.mark.parametrize("after", ["x.shape[1]", "x.size(-1)", "x.contiguous().shape[-1]"])
@pytest.mark.parametrize("form", FORMS)
def test_a_dimension_that_a_wrapper_takes(tmp_path, written, after, form):
    found = arguments(
        tmp_path,
        "def run(x, y):\n    assert x.ndim == 2\n"
        f"    {form.format(f'{written} <= 256')}\n"
        f"    kernel[(1,)](x, y, None, 1, {after}, BLOCK={after})\n",
    )
    assert found.values["BLOCK"] == 256


TYPES = {
    "x.dtype in [torch.float16, torch.bfloat16]": ["float16", "bfloat16"],
    "x.dtype in (torch.int8,) and x.is_cuda": ["int8"],
    "x.dtype == torch.bfloat16 or x.dtype == torch.float32": ["bfloat16", "float32"],
    "x.dtype == torch.float64": ["float64"],
    "not x.dtype not in {torch.int8}": ["int8"],
    "x.dtype == y.dtype": [],
    "x.dtype != torch.int8": [],
    "x.dtype in [torch.int8] or y is None": [],
    "y.dtype in [torch.int8]": [],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("condition", "types"), TYPES.items())
@pytest.mark.parametrize("passed", ["x", "x.contiguous()", "x.view(8, 16)", "x.t()"])
def test_types_that_a_wrapper_takes(tmp_path, form, condition, types, passed):
    found = arguments(
        tmp_path,
        f"def run(x, y):\n    n = x.shape[0] + y.shape[0]\n    {form.format(condition)}\n"
        f"    kernel[(1,)]({passed}, y, None, 1, n, BLOCK=64)\n",
    )
    assert [str(t).removeprefix("torch.") for t in found.values["x"].allowed] == types


def test_several_sizes_are_halved_from_the_largest():
    test = ast.parse("a * b <= c", mode="eval").body

    def value(condition, sizes):
        return eval(ast.unparse(condition), {"c": 64}, dict(sizes))

    assert allowed_sizes(test, True, {"a": 64, "b": 16}, value) == {"a": 8, "b": 8}
    assert allowed_sizes(test, False, {"a": 64, "b": 16}, value) == {}
    assert allowed_sizes(ast.parse("c > 64", mode="eval").body, True, {}, value) == {}


# How a wrapper chooses the warps by a size, and the most that is assumed of it.
WARPS = {
    "num_warps = 4 if {0} <= 64 else 8": 128,
    "num_warps = 4 if {0} < 64 else 8 if {0} <= 256 else 16": 512,
    "num_warps = 4\n    if {0} > 64:\n        num_warps = 8": 128,
    "num_warps = 4 if {0} < 2048 else 8": 1024,
    "num_warps = 4 if {0} > 1 else 8": 1024,
    "num_stages = 4 if {0} <= 64 else 8": 1024,
}


@pytest.mark.parametrize(("chosen", "size"), WARPS.items())
@pytest.mark.parametrize("name", ["width", "n"])
def test_sizes_by_which_warps_are_chosen(tmp_path, chosen, size, name):
    found = arguments(
        tmp_path,
        f"def run(x, y):\n    rows, {name} = x.shape\n    {chosen.format(name)}\n"
        f"    kernel[(1,)](x, y, None, 1, {name}, BLOCK=triton.next_power_of_2({name}))\n",
    )
    assert found.values["BLOCK"] == size


WRAPPER = (
    "def run(x, y, tile: int):\n    rows, width = x.shape\n"
    "    kernel[(1,)](x, y, None, tile, width, BLOCK=width)\n"
)
# What a test or a benchmark passes, and the width and the tile that are assumed then.
CALLERS = {
    "def test_it():\n    run(torch.randn(8, 128), y, 16)\n": (128, 16),
    "def test_it():\n    x = torch.randn(8, 128).half().cuda()\n    run(x, y, 16)\n": (128, 16),
    "def test_it():\n    run(torch.randn(128, 8).t().contiguous(), y, 16)\n": (1024, 16),
    "def test_it():\n    run(torch.randn(128, 8).transpose(0, 1), y, 16)\n": (128, 16),
    "def test_it():\n    run(torch.randn(8, 100), y, 5)\n": (1024, 64),
    "def test_it():\n    run(torch.randn(8, 32), y, 16)\n    run(torch.randn(8, 256), y, 32)\n": (
        256,
        32,
    ),
    "@pytest.mark.parametrize('w', [7, 32, 512])\ndef test_it(w):\n"
    "    run(torch.randn(3, w), y, w)\n": (512, 512),
    "@triton.testing.perf_report(triton.testing.Benchmark(x_names=['w'], x_vals=[128, 256],\n"
    "    args={'t': 32}))\ndef bench(w, t):\n    run(torch.randn(3, w), y, t)\n": (256, 32),
}


def launched(folder, wrapper, files):
    (folder / "pkg").mkdir()
    for name, text in {"pkg/ops.py": wrapper, "pyproject.toml": "", **files}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    calls_elsewhere.cache_clear()
    default_of.cache_clear()
    (site,) = call_sites("kernel", folder / "pkg/ops.py", folder)
    return launch_arguments(site, KERNEL, {"torch": torch}, folder).values


@pytest.mark.parametrize("place", ["tests/test_run.py", "benchmarks/run.py"])
@pytest.mark.parametrize(("caller", "sizes"), CALLERS.items())
def test_sizes_that_tests_and_benchmarks_pass(tmp_path, place, caller, sizes):
    before = "import pytest, torch, triton\nfrom pkg.ops import run\ny = torch.empty(8)\n"
    found = launched(tmp_path, WRAPPER, {place: before + caller})
    assert (found["BLOCK"], found["stride"]) == sizes


@pytest.mark.parametrize(
    ("files", "tile"),
    [
        ({}, 64),
        ({"pkg/model.py": "def render(x, tile: int = 16):\n    pass\n"}, 16),
        ({"model.py": "def render(x, *, tile=32):\n    pass\n"}, 32),
        ({"pkg/a.py": "def a(tile=8): pass\ndef b(tile=16): pass\ndef c(tile=16): pass\n"}, 16),
        ({"pkg/a.py": "def a(tile=None): pass\ndef b(tile): pass\n"}, 64),
    ],
)
def test_the_default_of_other_functions_of_the_project(tmp_path, files, tile):
    assert launched(tmp_path, WRAPPER, files)["stride"] == tile


@pytest.mark.parametrize(
    "move", ["permute(0, 2, 1, 3)", "transpose(1, 2)", "permute((0, 2, 1, 3))"]
)
@pytest.mark.parametrize("form", ["view", "reshape"])
def test_a_head_that_a_layer_sets(tmp_path, move, form):
    found = launched(
        tmp_path,
        "def run(q, y):\n    batch, length, heads, inner = q.shape\n"
        "    kernel[(1,)](q, y, None, q.stride(1), length, BLOCK=inner)\n"
        "class Layer:\n    def __init__(self, width, heads):\n"
        "        self.heads = heads\n        self.head = width // heads\n"
        "    def forward(self, x):\n        b, n, d = x.shape\n"
        f"        q = self.project(x).{form}(b, n, self.heads, self.head).{move}.contiguous()\n"
        "        return run(q, q)\n",
        {"model.py": "def model(width=128, heads=4):\n    pass\n"},
    )
    assert found["BLOCK"] == 32

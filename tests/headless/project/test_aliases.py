"""Launches of a kernel under another name, and what their surroundings say of the arguments."""

import ast
from pathlib import Path

import pytest

from traceview.kernels.headless.project.assumed_tensor import AssumedTensor
from traceview.kernels.headless.project.call_sites import Aliases, call_sites
from traceview.kernels.headless.project.launch_arguments import launch_arguments
from traceview.kernels.headless.signatures import Parameter

TABLES = """
run = update if fast else other
TABLE = {"adam": {"before": other, "update": update}, "lion": {"before": other}}
step = TABLE[name]["update"]
first = TABLE[name]["before"]
pair = (update, other)
kernels = Kernels(second=update, third=other)
loop = pool = loop
"""


@pytest.mark.parametrize(
    ("text", "is_kernel"),
    [
        ("update", True),
        ("module.update", True),
        ("wrapped(update)", True),
        ("run", True),
        ("step", True),
        ('TABLE["adam"]["update"]', True),
        ("TABLE[name][key]", True),
        ("pair[0]", True),
        ("found().second", True),
        ("kernels.third", False),
        ("first", False),
        ("other", False),
        ('TABLE["lion"][key]', False),
        ("loop", False),
    ],
)
def test_an_expression_is_followed_to_the_kernel(text, is_kernel):
    aliases = Aliases("update", ast.parse(TABLES))
    assert aliases.names(ast.parse(text, mode="eval").body) is is_kernel


def launched(tmp_path: Path, text: str, *names: str) -> dict[str, object]:
    path = tmp_path / "ops.py"
    path.write_text(text)
    (site,) = call_sites("update", path, None)
    return dict(launch_arguments(site, [Parameter(name) for name in names], {}).values)


def test_a_launch_through_a_table_is_found(tmp_path):
    text = (
        "TABLE = {'adam': update}\n"
        "def step(p, name):\n    go = TABLE[name]\n    go[(4,)](p, p.numel(), 256)\n"
    )
    values = launched(tmp_path, text, "p", "n", "BLOCK")
    assert isinstance(values["p"], AssumedTensor)
    assert values["BLOCK"] == 256


def test_strides_in_a_tuple_take_as_many_names_as_they_are(tmp_path):
    text = "def f(q):\n    s = (0, 1, 2)\n    update[(4,)](*s, 7)\n"
    values = launched(tmp_path, text, "a", "b", "c", "BLOCK")
    assert values == {"a": 0, "b": 1, "c": 2, "BLOCK": 7}


def test_an_assertion_tells_a_value_a_size_and_a_rank(tmp_path):
    text = (
        "def f(mid, bits):\n"
        "    width = mid.shape[-1]\n"
        "    assert bits in [8, 4, 2, 1]\n"
        "    assert width in {16, 32, 64, 128}\n"
        "    assert mid.shape == (batch, rows, heads, width)\n"
        "    update[(4,)](bits, width, mid.stride(2), mid.stride(3))\n"
    )
    values = launched(tmp_path, text, "bits", "width", "inner", "last")
    assert values == {"bits": 2, "width": 128, "inner": 1024, "last": 1}


def test_lists_are_built_and_the_rest_is_shared_among_unknown_ones(tmp_path):
    text = (
        "def f(tiles: List[List[torch.Tensor]]):\n"
        "    first, second = looked_up(tiles)\n"
        "    update[(4,)](\n"
        "        *[tiles[i][j] for i in range(2) for j in range(2) if j < 2], *first, *second, 7\n"
        "    )\n"
    )
    values = launched(tmp_path, text, *"abcd", "s0", "s1", "t0", "t1", "n")
    assert [name for name, value in values.items() if isinstance(value, AssumedTensor)] == [*"abcd"]
    assert values["n"] == 7


FACTORY = """
def build():
    @triton.jit
    def update(p, n, BLOCK: tl.constexpr, SPLITS: tl.constexpr): ...
    @triton.jit
    def other(p, q, n, BLOCK: tl.constexpr): ...
    return update, other
"""


def test_a_kernel_that_a_function_returns_is_known_by_its_arguments(tmp_path):
    calls = (
        "def run(p, q):\n"
        "    first, second = build()\n"
        "    second[(4,)](p, q, 7, BLOCK=64)\n"
        "    first[(4,)](p, 512, BLOCK=256, SPLITS=4, num_warps=8)\n"
    )
    values = launched(tmp_path, FACTORY + calls, "p", "n", "BLOCK", "SPLITS")
    assert (values["n"], values["BLOCK"], values["SPLITS"]) == (512, 256, 4)


@pytest.mark.parametrize(
    "call", ["first[(4,)](p, 512, 256)", "first[(4,)](p, 512, 8, 4, 2)", "first(p, 512, 256, 4)"]
)
def test_other_arguments_are_of_no_kernel(tmp_path, call):
    path = tmp_path / "ops.py"
    path.write_text(FACTORY + f"first, _ = build()\n{call}\n")
    assert list(call_sites("update", path, None)) == []


def test_a_compilation_ahead_of_the_launch(tmp_path):
    text = "def run(p):\n    update.warmup(p, n=1024, BLOCK=256, grid=(1,))\n"
    values = launched(tmp_path, text, "p", "n", "BLOCK")
    assert (values["n"], values["BLOCK"]) == (1024, 256)

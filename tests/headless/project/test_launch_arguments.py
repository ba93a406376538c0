"""What a call in the source of a project says about the arguments of a kernel."""

import ast
import itertools
from pathlib import Path

import pytest

from traceview.kernels.headless.project.assumed_tensor import AssumedSize, AssumedTensor
from traceview.kernels.headless.project.call_sites import call_sites
from traceview.kernels.headless.project.launch_arguments import globals_of, launch_arguments
from traceview.kernels.headless.signatures import Parameter

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

KERNEL = [
    Parameter("x"),
    Parameter("y"),
    Parameter("bias"),
    Parameter("stride"),
    Parameter("n"),
    Parameter("BLOCK", is_constexpr=True),
]


def arguments(tmp_path, source, parameters=KERNEL):
    file = tmp_path / "wrapper.py"
    file.write_text(source)
    (site,) = call_sites("kernel", file, None)
    return launch_arguments(site, parameters, {"torch": torch, "triton": triton})


def test_tensors_options_and_constants_of_a_wrapper(tmp_path):
    found = arguments(
        tmp_path,
        "def norm(x, bias=None):\n"
        "    rows, n = x.shape\n"
        "    y = torch.empty_like(x, dtype=torch.int8)\n"
        "    block = triton.next_power_of_2(n)\n"
        "    warps = 8 if block >= 1024 else 4\n"
        "    kernel[(rows,)](x, y, bias, x.stride(0), n, BLOCK=block, num_warps=warps)\n",
    )
    assert isinstance(found.values["x"], AssumedTensor)
    assert found.values["y"].dtype is torch.int8
    assert found.values["bias"] is None
    assert (found.values["stride"], found.values["n"], found.values["BLOCK"]) == (1024, 1024, 1024)
    assert found.options == {"num_warps": 8}
    assert found.place == "wrapper.py:6"


def test_the_last_stride_is_one_and_settings_come_from_the_caller(tmp_path):
    found = arguments(
        tmp_path,
        "def outer(x):\n"
        "    return inner(x, x, 256)\n"
        "def inner(x, y, block: int):\n"
        "    kernel[(1,)](x, y, None, x.stride(1), x.size(0), block)\n",
    )
    assert (found.values["stride"], found.values["BLOCK"]) == (1, 256)


def test_a_tensor_of_the_shape_of_another_has_its_rank(tmp_path):
    found = arguments(
        tmp_path,
        "def cast(x):\n"
        "    batch, heads, n, head_dim = x.shape\n"
        "    y = torch.empty(x.shape, dtype=torch.int8)\n"
        "    kernel[(n,)](x, y, None, y.stride(2), n, BLOCK=64)\n",
    )
    assert found.values["y"].rank == 4
    assert found.values["stride"] == 1024


def test_the_last_of_four_dimensions_of_an_operand_of_attention_is_a_head(tmp_path):
    found = arguments(
        tmp_path,
        "def attention(q, v):\n"
        "    batch, heads, n, inner = q.shape\n"
        "    kernel[(n,)](q, v, None, q.stride(2), n, BLOCK=inner)\n",
    )
    assert found.values["BLOCK"] == 64


def test_a_last_stride_beside_another_is_of_one_more_dimension(tmp_path):
    found = arguments(
        tmp_path,
        "def run(x, y, grouped):\n"
        "    kernel[(1,)](x, y, None, x.stride(2) if grouped else 0, x.stride(-1), BLOCK=1)\n",
    )
    assert found.values["n"] == 1
    assert found.values.get("stride") != 1


def test_operands_of_attention_have_one_rank(tmp_path):
    found = arguments(
        tmp_path,
        "def attention(q, v):\n"
        "    batch, heads, n, head_dim = q.shape\n"
        "    kernel[(n,)](q, v, None, v.stride(2), n, BLOCK=64)\n",
    )
    assert found.values["stride"] == 1024


def test_a_group_of_a_quantization_is_no_size_of_the_data(tmp_path):
    found = arguments(
        tmp_path,
        "def scaled(x, y, n: int, group_size: int):\n"
        "    kernel[(n,)](x, y, None, group_size, n, BLOCK=64)\n",
    )
    # A tile of 64 holds two groups, so that BLOCK // group_size is not 0.
    assert (found.values["stride"], found.values["n"]) == (32, 1024)


@pytest.mark.parametrize(
    ("tensor", "shape", "size"),
    [
        ("x", "batch, n, H", 1024),
        ("hidden_states", "n, H", 1024),
        ("x", "batch, n, H, d", 16),
        ("x", "batch, H, n, d", 16),
        ("gate", "batch, n, H", 16),
        ("x", "batch, n, heads", 16),
    ],
)
def test_the_last_dimension_of_an_input_named_h_is_its_hidden_size(tmp_path, tensor, shape, size):
    name = "heads" if "heads" in shape else "H"
    found = arguments(
        tmp_path,
        f"def f({tensor}):\n    {shape} = {tensor}.shape\n"
        f"    kernel[(1,)]({tensor}, {tensor}, None, 1, {name}, BLOCK=64)\n",
    )
    assert found.values["n"] == size


def test_unpacked_strides_fill_what_is_left(tmp_path):
    strided = [Parameter(n) for n in ("x", "n", "sx0", "sx1", "sy0", "sy1")]
    found = arguments(
        tmp_path,
        "def f(x, y):\n    kernel[(1,)](x, 7, *x.stride(), *y.stride(), BLOCK=64)\n",
        [*strided, Parameter("BLOCK", is_constexpr=True)],
    )
    assert [found.values[p.name] for p in strided[2:]] == [1024, 1, 1024, 1]


@pytest.mark.parametrize("ranks", [(2, 2), (3, 3, 3), (3, None, None), (None, 3, None, 3), (4, 4)])
@pytest.mark.parametrize("constexprs", [0, 1, 2])
@pytest.mark.parametrize("others", [0, 1])
def test_plain_arguments_may_be_for_constexprs(tmp_path, ranks, constexprs, others):
    """A rank of None is that of the others, and nothing says it."""
    rank, tensors = max(filter(None, ranks)), "abcd"[: len(ranks)]
    axes = [[f"s{tensor}{'bhnd'[at]}" for at in range(rank)] for tensor in tensors]
    plain = [*"nm"[:others], *"DEF"[:constexprs]]
    shapes = "".join(
        f"    {', '.join(f'_{at}' for at in range(known))} = {tensor}.shape\n"
        for tensor, known in zip(tensors, ranks, strict=True)
        if known
    )
    passed = [*tensors, *(f"*{tensor}.stride()" for tensor in tensors), *("64" for _ in plain)]
    found = arguments(
        tmp_path,
        f"def f({', '.join(tensors)}):\n{shapes}    kernel[(1,)]({', '.join(passed)}, **options)\n",
        [
            *(Parameter(n) for n in (*tensors, *itertools.chain(*axes), *plain[:others])),
            *(Parameter(n, is_constexpr=True) for n in plain[others:]),
        ],
    )
    for each in axes:
        assert [found.values[name] for name in each] == [1024] * (rank - 1) + [1]
    assert [found.values[name] for name in plain] == [64] * len(plain)


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("rest", ["(None, y, None)", "((None, y, None) if flag else others)"])
def test_what_is_unpacked_behind_strides_takes_none_of_them(tmp_path, rank, rest):
    strides = [f"x_stride_{at}" for at in range(rank)]
    found = arguments(
        tmp_path,
        f"def f(x, y, others, flag):\n    kernel[(1,)](x, *x.stride(), *{rest}, BLOCK=64)\n",
        [Parameter(n) for n in ("x_ptr", *strides, "a", "b", "c")]
        + [Parameter("BLOCK", is_constexpr=True)],
    )
    assert [found.values[n] for n in strides] == [1024] * (rank - 1) + [1]
    assert (found.values["a"], found.values["c"]) == (None, None)


@pytest.mark.parametrize("ranks", [(3, 4), (4, 2), (1, 3)])
@pytest.mark.parametrize("known", ["a, b, c, d", "a, b"])
def test_unpacked_strides_are_those_that_are_named_so(tmp_path, ranks, known):
    """Constexprs that come first and the ranks of other tensors do not count."""
    owned = zip("xy", ranks, strict=True)
    strides = [[f"{name}_d{at}_stride" for at in range(rank)] for name, rank in owned]
    names = ["rows", "x_ptr", *strides[0], "y_ptr", *strides[1], "scale", "SIZE"]
    listed = [Parameter(n, is_constexpr=n in ("rows", "SIZE")) for n in names]
    found = arguments(
        tmp_path,
        f"def f(x, y, z):\n    {known} = z.shape\n    of_y = list(y.stride())\n"
        "    kernel[(1,)](64, x, *x.stride(), y, *of_y, 2.0, SIZE=64)\n",
        [*listed, Parameter("BLOCK", is_constexpr=True)],
    )
    for each in strides:
        assert [found.values[n] for n in each] == [1024] * (len(each) - 1) + [1]
    assert (found.values["scale"], found.values["SIZE"]) == (2.0, 64)


NAMED = {
    "{tensor}_stride_{axis}": "q_stride_b",
    "stride_{tensor}{axis}": "stride_qb",
    "stride_{tensor}_{axis}": "stride_q_b",
    "{tensor}_stride{axis}": "q_strideb",
}


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("ranks", [(4, 3), (2, 4, 3), (3, 3, 1, 4), (1, 4)])
def test_tensors_that_follow_one_another_have_the_strides_named_after_them(tmp_path, named, ranks):
    tensors, axes = "qkvo"[: len(ranks)], "bhmd"
    strides = [
        [named.format(tensor=tensor, axis=axis) for axis in axes[:rank]]
        for tensor, rank in zip(tensors, ranks, strict=True)
    ]
    unpacked = ", ".join(f"*{tensor}.stride()" for tensor in tensors)
    found = arguments(
        tmp_path,
        f"def f({', '.join(tensors)}):\n    kernel[(1,)](q, {unpacked}, 2.0)\n",
        [Parameter(name) for name in ("q_ptr", *itertools.chain(*strides), "scale")],
    )
    for each in strides:
        assert [found.values[n] for n in each] == [1024] * (len(each) - 1) + [1]
    assert found.values["scale"] == 2.0


@pytest.mark.parametrize(
    ("value", "passed"),
    [
        ("x.stride(3)", 1),
        ("(x.stride(3) if x is not None else 7)", 7),
        ("(0 if x is None else x.stride(3))", 0),
        ("(x.stride(3) if x else 7)", 7),
    ],
)
@pytest.mark.parametrize("annotation", ["", ": Optional[torch.Tensor]"])
@pytest.mark.parametrize("off", ["paged=False", "*, paged=False"])
def test_a_tensor_that_is_none_by_default(tmp_path, value, passed, annotation, off):
    """It is passed where its strides are taken unasked; branches that are off show no rank."""
    found = arguments(
        tmp_path,
        f"def f(y, x{annotation} = None, {off}):\n"
        "    if paged:\n        assert y.dim() == 5 and y.stride(4) == 1\n"
        f"    kernel[(1,)](x, {value}, y.stride(2), y.stride(3))\n",
        [Parameter(name) for name in ("x_ptr", "of_x", "outer", "inner")],
    )
    assert (found.values["of_x"], found.values["outer"]) == (passed, 1024)
    assert found.values["inner"] == 1
    assert (found.values["x_ptr"] is None) == ("if x" in value or "else x" in value)


@pytest.mark.parametrize(
    "line",
    [
        "from ops.core.sizes import BLOCK",
        "from .core.sizes import BLOCK",
        "from ops.core.sizes import WIDE as BLOCK",
    ],
)
def test_constants_that_a_call_imports_from_its_project(tmp_path, line):
    for name, text in (("sizes", "WARPS = 4\nBLOCK = 32 * WARPS\nWIDE = BLOCK\n"), ("a", "")):
        (tmp_path / "ops/core").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"ops/core/{name}.py").write_text(text)
    file = tmp_path / "ops/run.py"
    file.write_text(
        f"{line}\nfrom ops.core.a import gone\nfrom os import path\n"
        "def f(x):\n    kernel[(1,)](x, x, None, 1, 1024, BLOCK=BLOCK)\n"
    )
    (site,) = call_sites("kernel", file, None)
    known = globals_of(site.module, {"torch": torch}, file)
    assert launch_arguments(site, KERNEL, known).values["BLOCK"] == 128
    assert "gone" not in known


@pytest.mark.parametrize("mode", ["up", "p"])
def test_the_branch_of_a_call_decides_the_branches_before_it(tmp_path, mode):
    """What another branch makes of a tensor does not reach the call."""
    source = (
        "def f(x, mode):\n    if mode == 'p':\n        x = x.reshape(x.shape[0], -1)\n"
        "    if mode == 'p':\n        other[(1,)](x)\n"
        "    elif mode == 'up':\n        kernel[(1,)](x, x.stride(1), x.stride(2))\n"
    )
    if mode == "p":
        source = source.replace("kernel", "third").replace("other[(1,)](x)", (
            "kernel[(1,)](x, x.stride(0), x.stride(1))"
        ))  # fmt: skip
    names = ("x_ptr", "outer", "inner")
    found = arguments(tmp_path, source, [Parameter(name) for name in names])
    assert (found.values["outer"], found.values["inner"]) == (1024, 1)


def test_what_does_not_follow_is_left_open(tmp_path):
    found = arguments(
        tmp_path, "def f(x, n):\n    kernel[(1,)](x, lookup(x), None, n.a.b, n, BLOCK=lookup(n))\n"
    )
    # Nothing shows that x is a tensor.
    assert set(found.values) == {"bias"}


def test_tests_come_before_other_files(tmp_path):
    for name in ("ops.py", "other.py", "tests/test_ops.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("kernel[(1,)](1)\n")
    sites = call_sites("kernel", tmp_path / "ops.py", tmp_path)
    assert [Path(site.file).name for site in sites] == ["ops.py", "test_ops.py", "other.py"]
    assert all(isinstance(site.call, ast.Call) for site in sites)


def test_what_is_installed_below_a_project_is_not_searched(tmp_path):
    installed = (".venv/lib/site-packages/ops/a.py", "env/site-packages/b.py", ".git/c.py")
    for name in ("ops.py", *installed, "bench/time.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("kernel[(1,)](1)\nkernel_2[(1,)](1)\n")
    sites = call_sites("kernel", tmp_path / "ops.py", tmp_path)
    assert [(site.file.name, site.call.lineno) for site in sites] == [("ops.py", 1), ("time.py", 1)]


def test_types_of_positions_and_of_annotated_tensors(tmp_path):
    found = arguments(
        tmp_path,
        "def sample(x: torch.LongTensor, bias: torch.FloatTensor):\n"
        "    y = torch.arange(x.size(0))\n"
        "    kernel[(1,)](x, y, bias, x.stride(0), 4, BLOCK=64)\n",
    )
    kinds = [found.values[name].dtype for name in ("x", "y", "bias")]
    assert kinds == [torch.int64, torch.int64, None]


def test_a_tensor_made_with_the_unknown_type_of_another_is_of_that_type(tmp_path):
    found = arguments(
        tmp_path,
        "def outer(x):\n"
        "    y = torch.zeros(4, 8, dtype=x.dtype)\n"
        "    kernel[(1,)](x, y, None, x.stride(0), 4, BLOCK=64)\n",
    )
    assert (found.values["y"].name, found.values["y"].dtype) == ("x", None)


def test_the_quotient_of_two_assumed_sizes_is_assumed(tmp_path):
    found = arguments(
        tmp_path,
        "def outer(x, y):\n"
        "    group = x.size(0) // y.size(0)\n"
        "    kernel[(1,)](x, y, None, 1, 2 // 2, BLOCK=group)\n",
    )
    assert isinstance(found.values["BLOCK"], AssumedSize)
    assert not isinstance(found.values["n"], AssumedSize)


def test_a_starred_shape_among_other_values(tmp_path):
    found = arguments(
        tmp_path,
        "def chunked(k, v):\n"
        "    batch, n, heads, width, head_dim = *k.shape, v.shape[-1]\n"
        "    kernel[(n,)](k, v, None, k.stride(1), heads, BLOCK=head_dim)\n",
    )
    assert (found.values["n"], found.values["BLOCK"]) == (16, 64)
    assert found.values["x"].rank == 4


def test_the_name_of_a_size_tells_more_than_its_place(tmp_path):
    found = arguments(
        tmp_path,
        "def rotate(x):\n"
        "    n_heads_K = x.shape[1]\n"
        "    kernel[(1,)](x, x, None, 8, n_heads_K, BLOCK=64)\n",
    )
    assert found.values["n"] == 16


@pytest.mark.parametrize(("owner", "n"), [("logits", 32768), ("x", 1024)])
def test_the_last_dimension_of_logits_is_a_vocabulary(tmp_path, owner, n):
    found = arguments(
        tmp_path,
        f"def loss({owner}):\n"
        f"    b, t, n = {owner}.shape\n"
        f"    kernel[(1,)]({owner}, {owner}, None, 8, n, BLOCK=64)\n",
    )
    assert found.values["n"] == n


@pytest.mark.parametrize("owner", ["q", "v", "r", "xx"])
@pytest.mark.parametrize("last", ["K", "V", "D", "n"])
def test_the_last_of_four_dimensions_with_heads_is_that_of_a_head(tmp_path, owner, last):
    found = arguments(
        tmp_path,
        f"def scan({owner}):\n"
        f"    B, T, H, {last} = {owner}.shape\n"
        f"    kernel[(1,)]({owner}, {owner}, None, H, {last}, BLOCK=64)\n",
    )
    assert found.values["n"] == (1024 if last == "n" and owner in ("r", "xx") else 64)


def test_a_branch_for_a_number_of_dimensions(tmp_path):
    found = arguments(
        tmp_path,
        "def grouped(x, sizes):\n"
        "    if x.ndim == 3:\n"
        "        n = x.shape[1]\n"
        "    else:\n"
        "        n = x.shape[0] // sizes.shape[0]\n"
        "    kernel[(1,)](x, x, None, 8, n, BLOCK=64)\n",
    )
    assert found.values["n"] == 1024


def test_taps_of_a_filter_are_few(tmp_path):
    found = arguments(
        tmp_path,
        "def convolved(x, weight):\n"
        "    dim, width = weight.shape\n"
        "    kernel[(1,)](x, weight, None, dim, 8, BLOCK=width)\n",
    )
    assert (found.values["stride"], found.values["BLOCK"]) == (1024, 4)


LAYOUTS = """def convolved(x, weight):
    batch, dim, n = x.shape
    assert x.stride(2) == 1 or x.stride(1) == 1
    channels_last = (x.stride(1) == 1) & (x.stride(2) > 1)
    y = torch.empty_like(x)
    weight = weight.transpose(0, 1).contiguous()
    if not channels_last:
        REFUSE
    else:
        kernel[(n,)](x, y, None, x.stride(1), y.stride(2), BLOCK=weight.stride(1))
"""


def test_a_layout_that_the_wrapper_refuses_is_not_assumed(tmp_path):
    found = arguments(tmp_path, LAYOUTS.replace("REFUSE", 'raise ValueError("channels last")'))
    assert (found.values["stride"], found.values["n"]) == (1, 1024)


@pytest.mark.parametrize(
    ("test", "stride"), [("x.stride(-1) == 1", 1024), ("x.stride(1) == 1", 1), ("flag", 1024)]
)
def test_what_is_asserted_of_a_layout_holds(tmp_path, test, stride):
    found = arguments(
        tmp_path,
        "def convolved(x, flag=True):\n"
        "    batch, dim, n = x.shape\n"
        f"    assert {test}\n"
        "    kernel[(n,)](x, x, None, x.stride(1), n, BLOCK=64)\n",
    )
    assert found.values["stride"] == stride


SETTINGS = """TABLE = {torch.float16: 16, torch.float32: 32}
class Optimizer:
    def __init__(self, group, mode=3):
        self.mode, self.opened = mode, False
        self.block = mode * 128
        self.broken = open(group)
    def step(self, x, dtypes):
        for dtype in dtypes:
            kernel[(1,)](x, x, None, TABLE[dtype], self.broken, BLOCK=self.block)
"""


def test_settings_of_an_object_and_of_a_table(tmp_path):
    file = tmp_path / "wrapper.py"
    file.write_text(SETTINGS)
    (site,) = call_sites("kernel", file, None)
    table = {torch.float16: 16, torch.float32: 32}
    found = launch_arguments(site, KERNEL, {"torch": torch, "triton": triton, "TABLE": table})
    assert (found.values["stride"], found.values["BLOCK"]) == (32, 384)
    # What calls something is not followed.
    assert "n" not in found.values


def test_only_a_pair_can_be_unpacked(tmp_path):
    strided = [Parameter(n) for n in ("x", "sb0", "sb1", "n")]
    found = arguments(
        tmp_path,
        "def f(x, bias=None):\n"
        "    kernel[(1,)](x, *(8, 1) if bias is not None else 0, x.size(0))\n",
        strided,
    )
    assert [found.values[p.name] for p in strided[1:]] == [8, 1, 1024]


@pytest.mark.parametrize(("of_branch", "stride"), [("k = k.view(-1, 8)", 1), ("pass", 1024)])
def test_a_branch_that_gives_a_tensor_other_dimensions(tmp_path, of_branch, stride):
    found = arguments(
        tmp_path,
        "def copied(k):\n"
        f"    if k.dim() == 3:\n        {of_branch}\n"
        "    kernel[(1,)](k, k, None, 8, k.stride(1), BLOCK=64)\n",
    )
    assert found.values["n"] == stride


@pytest.mark.parametrize(
    ("named", "size"),
    [
        ("page_size = k.size(1)", 64),
        ("block_size = k.shape[order]", 64),
        ("head_dim = k.size(order)", 64),
        ("e = k.shape[-1]", 64),
        ("e = k.shape[0]", 4),
    ],
)
def test_sizes_by_the_names_that_they_get(tmp_path, named, size):
    found = arguments(
        tmp_path,
        "def attended(k, order):\n"
        f"    b, h, n, d = k.shape\n    {named}\n"
        f"    kernel[(1,)](k, k, None, 8, {named.split()[0]}, BLOCK=64)\n",
    )
    assert found.values["n"] == size


@pytest.mark.parametrize(("name", "stride"), [("query_states", 1024), ("keys", 1024), ("w", 1)])
def test_operands_of_attention_by_other_names_have_one_rank(tmp_path, name, stride):
    found = arguments(
        tmp_path,
        f"def attention(v, {name}):\n    batch, heads, n, d = v.shape\n    m = {name}.shape[2]\n"
        f"    kernel[(n,)](v, {name}, None, {name}.stride(2), m, BLOCK=64)\n",
    )
    assert found.values["stride"] == stride


@pytest.mark.parametrize("kind", ["DTensor", "MyTensor", "torch.Tensor"])
def test_a_tensor_is_of_no_class_of_its_own(tmp_path, kind):
    found = arguments(
        tmp_path,
        "def local(x):\n"
        f"    if isinstance(x, {kind}):\n        return x._local\n    return x\n"
        "def outer(x):\n    y = local(x)\n    return inner(y, y)\n"
        "def inner(x, y):\n    i, j, k = x.shape\n"
        "    kernel[(1,)](x, y, None, x.stride(2), j, BLOCK=64)\n",
    )
    assert isinstance(found.values["x"], AssumedTensor)
    assert (found.values["stride"], found.values["n"]) == (1, 1024)


@pytest.mark.parametrize("quotient", ["a // b", "triton.cdiv(a, b)", "max(triton.cdiv(a, b), 1)"])
def test_a_tile_of_one_group_is_assumed(tmp_path, quotient):
    found = arguments(
        tmp_path,
        "def scaled(x, y):\n    a, b = x.size(1), y.size(1)\n"
        f"    kernel[(1,)](x, y, None, a, b, BLOCK={quotient})\n",
    )
    assert isinstance(found.values["BLOCK"], AssumedSize)


@pytest.mark.parametrize("part", ["q_nope_dim", "rope_dim", "qk_rope_head_dim"])
def test_a_part_of_a_head_is_smaller_than_a_head(tmp_path, part):
    found = arguments(
        tmp_path,
        f"def rotated(q, {part}: int):\n    b, h, n, d = q.shape\n"
        f"    kernel[(1,)](q, q, None, d, d - {part}, BLOCK=64)\n",
    )
    assert 0 < found.values["n"] < found.values["stride"]


@pytest.mark.parametrize("form", ["view({})", "reshape({})", "reshape(({}))", "new_empty({})"])
@pytest.mark.parametrize(
    ("sizes", "at", "stride"),
    [
        ("b * h, n, d", 2, 1),
        ("b * h, n, d", 1, 1024),
        ("-1, d", 1, 1),
        ("b, h, n, d // 2, 2", 3, 1024),
        ("*k.shape[:2], n * d", 2, 1024),
    ],
)
def test_the_sizes_of_a_view_show_its_rank(tmp_path, form, sizes, at, stride):
    found = arguments(
        tmp_path,
        "def attended(k, v):\n"
        "    b, h, n, d = k.shape\n"
        f"    v = v.contiguous().{form.format(sizes)}\n"
        f"    kernel[(1,)](v, v, None, v.stride({at}), n, 64)\n",
    )
    assert found.values["stride"] == stride


@pytest.mark.parametrize(("at", "stride"), [(0, 1024), (2, 1024), (3, 1), (-1, 1)])
def test_the_last_stride_of_a_tensor_of_unknown_rank(tmp_path, at, stride):
    found = arguments(
        tmp_path,
        f"def copied(k, order={at}):\n    kernel[(1,)](k, k, None, 8, k.stride(order), BLOCK=64)\n",
    )
    assert found.values["n"] == stride


@pytest.mark.parametrize(
    ("taken", "stride"),
    [("x[i, j]", 1), ("x[0, j].contiguous()", 1), ("x[i]", 1024), ("x[:, 0]", 1024)],
)
def test_leading_indices_leave_the_other_dimensions(tmp_path, taken, stride):
    found = arguments(
        tmp_path,
        "def run(x):\n"
        "    a, b, c, d = x.shape\n"
        "    for i in range(a):\n"
        "        for j in range(b):\n"
        f"            part = {taken}\n"
        "            kernel[(1,)](part, part, None, part.stride(1), d, 64)\n",
    )
    assert found.values["stride"] == stride


def test_a_rank_that_is_unpacked_is_not_that_of_the_cache(tmp_path):
    found = arguments(
        tmp_path,
        "def decode(q, k):\n"
        "    b, h, d = q.shape\n"
        "    _, _, s, _ = k.shape\n"
        "    kernel[(1,)](q, k, None, q.stride(2), s, 64)\n",
    )
    assert found.values["stride"] == 1


def test_a_transposition_that_nothing_sets_is_off(tmp_path):
    found = arguments(
        tmp_path,
        "def product(x, y, trans_x, bias):\n"
        "    m, k = x.shape\n"
        "    kernel[(1,)](x, y, bias, x.stride(0 if trans_x else 1), k, 64)\n",
    )
    assert found.values["stride"] == 1


@pytest.mark.parametrize("count", ["x.numel()", "int(x.numel())", "max(1, int(x.numel()))"])
def test_a_tile_of_all_elements_is_assumed(tmp_path, count):
    found = arguments(
        tmp_path,
        "def outer(x, y):\n"
        f"    n = {count}\n"
        "    kernel[(1,)](x, y, None, 1, n, BLOCK=triton.next_power_of_2(n))\n",
    )
    assert isinstance(found.values["BLOCK"], AssumedSize)
    assert found.values["n"] % 16 == 0


@pytest.mark.parametrize("form", ["{}: [K, N], {}", "{} ({}): an operand", "{} : torch.{}, packed"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8"])
def test_a_docstring_states_types(tmp_path, form, dtype):
    found = arguments(
        tmp_path,
        "def outer(x, y):\n"
        f'    """Multiply.\n\n    Args:\n        {form.format("x", dtype)}\n'
        '        y: float16 or float32\n    """\n'
        "    kernel[(1,)](x, y, None, x.stride(0), y.size(0), BLOCK=64)\n",
    )
    assert found.values["x"].dtype is getattr(torch, dtype)
    assert found.values["y"].dtype is None


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "made",
    [
        "x.view({sizes})",
        "x.reshape({sizes})",
        "x.reshape(({sizes},))",
        "x.contiguous().view({sizes}).to(torch.float32)",
        "torch.empty(x.reshape({sizes}, -1).shape[:-1])",
        "torch.zeros(x.view({sizes}, 8, 8).shape[:-2], device=x.device)",
    ],
)
def test_the_shape_that_a_tensor_is_given_is_its_rank(tmp_path, made, count):
    found = arguments(
        tmp_path,
        "def run(x, n):\n"
        "    a, b, c, d, e = x.shape\n"
        f"    y = {made.format(sizes=', '.join(['a'] * count))}\n"
        f"    kernel[(1,)](x, y, None, y.stride({count - 1}), y.stride(-1), 64)\n",
    )
    assert (found.values["y"].rank, found.values["stride"]) == (count, 1)


@pytest.mark.parametrize("saved", ["ctx.of = (shift, n)", "ctx.shift, ctx.n = shift, n"])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("base", ["torch.autograd.Function", "Function"])
def test_backward_knows_what_forward_saves(tmp_path, saved, order, base):
    taken = "ctx.of" if "of" in saved else "(ctx.shift, ctx.n)"
    methods = [
        "    def forward(ctx, x, shift, n):\n"
        "        ctx.save_for_backward(torch.ones(4, dtype=torch.int8))\n"
        f"        {saved}\n        return x\n",
        "    def backward(ctx, dy):\n"
        f"        shift, n = {taken}\n        (x,) = ctx.saved_tensors\n"
        "        kernel[(1,)](dy, x, None, dy.stride(0), shift, n)\n        return dy, None\n",
    ]
    found = arguments(
        tmp_path,
        f"class Shift({base}):\n{''.join(methods[::order])}"
        "def shifted(x, shift=3, n=256):\n    return Shift.apply(x, shift, n)\n",
    )
    assert (found.values["n"], found.values["BLOCK"]) == (3, 256)
    assert found.values["y"].dtype is torch.int8


@pytest.mark.parametrize(
    ("given", "is_there"),
    [("state", True), ("self.state", True), ("None", False), ("", False), ("load(3)", True)],
)
def test_what_a_call_passes_is_not_none_even_where_it_is_not_known(tmp_path, given, is_there):
    found = arguments(
        tmp_path,
        f"def step(x, state):\n    return inner(x{f', h={given}' if given else ''})\n"
        "def inner(x, h=None):\n"
        "    kernel[(1,)](x, h, None, 1, 1, BLOCK=h is not None)\n",
    )
    assert found.values["BLOCK"] is is_there
    assert ("y" in found.values) is not is_there

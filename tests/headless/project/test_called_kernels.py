"""Kernels compiled with the arguments of a call in the source, which Triton takes."""

from importlib import metadata
from importlib.util import find_spec

import pytest

import traceview
from traceview.base.errors import InputError
from traceview.render.kernels.summary import circumstances

pytestmark = [
    pytest.mark.skipif(
        find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
    ),
    pytest.mark.programs,
]
TRITON_3_9 = bool(find_spec("triton")) and metadata.version("triton") >= "3.9"
HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
QUANTIZED = """@triton.jit
def unpacked(word):
    return (word & 15).to(tl.float16)


@triton.jit
def product(a_ptr, q_ptr, scale_ptr, c_ptr, BLOCK_K: tl.constexpr):
    m, k = tl.arange(0, 16), tl.arange(0, BLOCK_K)
    a = tl.load(a_ptr + m[:, None] * BLOCK_K + k[None, :])
    q = tl.load(q_ptr + k[:, None] * 16 + m[None, :])
    b = unpacked(q) * tl.load(scale_ptr + m)[None, :]
    tl.store(c_ptr + m[:, None] * 16 + m[None, :], tl.dot(a, b))


def run(a, q, scale):
    c = torch.zeros(a.size(0), q.size(1), dtype=scale.dtype)
    product[(1,)](a, q, scale, c, BLOCK_K=q.size(0) // scale.size(0))
"""
DESCRIBED = """from triton.tools.tensor_descriptor import TensorDescriptor


def set_blocks(arguments):
    arguments["x"].block_shape = [arguments["ROWS"], 64]


@triton.autotune([triton.Config({"ROWS": 32}, pre_hook=set_blocks)], key=[])
@triton.jit
def scaled(x, y_ptr, ROWS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(y_ptr + at, x.load([0, 0]))


def run(x):
    y = torch.empty_like(x)
    scaled[(1,)](TensorDescriptor(x, x.shape, x.stride(), [1, 1]), y)
"""


def types_of(tmp_path, text):
    (tmp_path / "script.py").write_text(HEAD + text)
    (kernel,) = traceview.inspect_ptx(tmp_path / "script.py").kernels
    assert kernel.compiled.how == "called"
    return {a.name: a.value if a.type == "constexpr" else a.type for a in kernel.compiled.arguments}


def test_a_tile_is_not_1_and_tensors_of_one_type_have_one(tmp_path):
    assert types_of(tmp_path, QUANTIZED) == {
        "a_ptr": "*fp16",
        "q_ptr": "*i32",
        "scale_ptr": "*fp16",
        "c_ptr": "*fp16",
        "BLOCK_K": 32,
    }


def test_the_hook_of_a_configuration_sets_block_shapes(tmp_path):
    assert types_of(tmp_path, DESCRIBED)["x"] == "tensordesc<fp16[32, 64]>"


MODES = """import enum


class Mode(enum.Enum):
    DOUBLE = 2
    SAME = 1


BY_TYPE = {torch.float16: Mode.SAME, torch.float32: Mode.DOUBLE}


@triton.jit
def scaled(x_ptr, y_ptr, MODE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) * MODE.value.value)


def run(x, y, kind):
    scaled[(1,)](x, y, BY_TYPE[kind], BLOCK=128)
"""


def test_a_member_of_an_enum(tmp_path):
    assert types_of(tmp_path, MODES)["MODE"] == "Mode.DOUBLE"


BIASED = """@triton.jit
def biased(x_ptr, bias_ptr, scale_ptr, y_ptr, HAS_SCALE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets) + tl.load(bias_ptr + offsets)
    if HAS_SCALE:
        x *= tl.load(scale_ptr + offsets)
    tl.store(y_ptr + offsets, x)


def run(x, y, bias=None, scale=None):
    biased[(1,)](x, bias, scale, y, scale is not None, BLOCK=128)
"""


def test_a_default_of_none_that_the_kernel_cannot_do_without(tmp_path):
    types = types_of(tmp_path, BIASED)
    assert types["bias_ptr"].startswith("*")
    assert types["scale_ptr"] is None


TUNED = """@triton.jit
def doubled(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets), offsets < n)


tuned = triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})(
    triton.autotune([triton.Config({"BLOCK": 2048}, num_warps=2)], key=["n"])(doubled)
)


def run(x, y):
    tuned[(1,)](x, y, x.size(0))
"""


def test_a_kernel_that_is_tuned_under_another_name(tmp_path):
    types = types_of(tmp_path, TUNED)
    assert (types["BLOCK"], types["EVEN"]) == (2048, False)


def test_helpers_of_a_helper_in_another_file(tmp_path):
    """The kernel's own file names the first helper alone."""
    package = tmp_path / "attention"
    package.mkdir()
    (package / "__init__.py").write_text("import of_a_package_that_is_not_there\n")
    (package / "rows.py").write_text(
        f"{HEAD}@triton.jit\ndef _loaded(k_ptr, at):\n    return tl.load(k_ptr + at)\n\n\n"
        "@triton.jit\ndef _product(a, k_ptr, at):\n    return tl.dot(a, _loaded(k_ptr, at))\n"
    )
    (package / "forward.py").write_text(
        f"{HEAD}from .rows import _product\n\n\n@triton.jit\ndef forward(a_ptr, k_ptr, y_ptr):\n"
        "    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]\n"
        "    tl.store(y_ptr + at, _product(tl.load(a_ptr + at), k_ptr, at))\n"
    )
    (kernel,) = traceview.inspect_ptx(package / "forward.py").kernels
    assert [a.type for a in kernel.compiled.arguments] == ["*fp16", "*fp16", "*fp32"]
    (note,) = (n for n in kernel.compiled.notes if "--signature" in n)
    assert note.startswith("arguments are guessed: a_ptr *fp16:16, k_ptr *fp16:16")


ASKED = """@triton.jit
def halved(x_ptr, y_ptr, n, KIND: tl.constexpr, segment_size: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * segment_size + tl.arange(0, segment_size)[None, :]
    x = tl.reshape(tl.load(x_ptr + at), (BLOCK, segment_size // BLOCK, BLOCK))
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(y_ptr + rows * n + columns, tl.sum(x, 1).to(KIND), mask=(rows < n) & (columns < n))


def run(x, y, blocks, segments, kinds={torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}):
    halved[(1,)](x, y, 64, kinds[x.dtype], segments, BLOCK=BLOCK_OF_CALL)
"""


@pytest.mark.parametrize("block", ["blocks", "x.size(0)", "x.size(0) - 2048", "1"])
def test_tiles_of_a_call_that_fit_no_kernel_are_guessed_and_a_type_is_that_of_tensors(
    tmp_path, block
):
    found = types_of(tmp_path, ASKED.replace("BLOCK_OF_CALL", block))
    assert found["y_ptr"] == "*fp16"
    assert found["segment_size"] % found["BLOCK"] == 0


@pytest.mark.parametrize("failing", ["raise ValueError('no data')", "undefined()", "1 / 0"])
def test_a_kernel_asked_for_by_name_is_compiled_though_its_script_fails(tmp_path, failing):
    path = tmp_path / "script.py"
    path.write_text(f"{HEAD}{QUANTIZED}\n\nif __name__ == '__main__':\n    {failing}\n")
    with pytest.raises(InputError, match="before it launched a kernel"):
        traceview.inspect_ptx(path)
    (kernel,) = traceview.inspect_ptx(f"{path}:product").kernels
    assert kernel.compiled.how == "called"


OPERANDS = """@triton.jit
def product(a_ptr, b_ptr, c_ptr, BLOCK: tl.constexpr):
    m, n = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    a, b = tl.load(a_ptr + m * BLOCK + n), tl.load(b_ptr + m * BLOCK + n)
    tl.store(c_ptr + m * BLOCK + n, {stored})


def run(x, weight, block: int):
    {prepared}
    c = torch.empty((block, block), dtype=torch.float32)
    product[(1,)](x, weight, c, BLOCK=block)
"""


@pytest.mark.parametrize(
    ("stored", "prepared", "types"),
    [
        ("tl.dot(a, b)", "x = torch.zeros((8, 8), dtype=torch.int8)", ["*i8", "*i8"]),
        ("tl.dot(tl.exp(tl.dot(a, b)), b)", "pass", ["*fp32", "*fp32"]),
    ],
    ids=["a quantized operand", "an operand that is computed in fp32"],
)
def test_operands_of_a_product_have_one_type(tmp_path, stored, prepared, types):
    found = types_of(tmp_path, OPERANDS.format(stored=stored, prepared=prepared))
    assert [found["a_ptr"], found["b_ptr"]] == types


WIDE = """@triton.jit
def product(a_ptr, b_ptr, c_ptr, F: tl.constexpr):
    m, f = tl.arange(0, 16), tl.arange(0, F)
    a = tl.load(a_ptr + m[:, None] * 16 + m[None, :])
    b = tl.load(b_ptr + m[:, None] * F + f[None, :])
    tl.store(c_ptr + m[:, None] * F + f[None, :], tl.dot(a, b))


def run(a, x):
    n, features = x.shape
    c = torch.empty_like(x)
    product[(1,)](a, x, c, features)
"""


def test_an_assumed_side_of_a_product_is_that_of_a_head(tmp_path):
    assert types_of(tmp_path, WIDE)["F"] == 128


READS = """@triton.jit
def reads(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.load(x_ptr + offsets, mask=offsets < n)


def run(x):
    reads[(1,)](x, x.numel(), BLOCK=64)
"""


def test_a_kernel_that_writes_nothing_with_any_arguments(tmp_path):
    assert types_of(tmp_path, READS)["BLOCK"] == 64


SCALED = """@triton.jit
def scaled(x_ptr, w_ptr, y_ptr, batch, stride, N, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w = {weights}
    x = tl.load(x_ptr + columns)
    tl.store(y_ptr + columns, x * w)


def run(x, w):
    y = torch.empty_like(x)
    scaled[(4,)](x, w, y, w.numel(), w.stride(0), x.shape[0], BLOCK=512)
"""


@pytest.mark.parametrize(
    ("weights", "stride"),
    [
        ("tl.load(w_ptr + columns * stride)", 1),
        ("tl.load(w_ptr + tl.program_id(1) * batch + columns * stride)", 1),
        pytest.param(
            "tl.load(tl.make_block_ptr(w_ptr, (N,), (stride,), (0,), (BLOCK,), (0,)))",
            1,
            marks=pytest.mark.skipif(TRITON_3_9, reason="Triton 3.9 has no block pointers"),
        ),
        ("tl.load(w_ptr + columns * stride + tl.program_id(1))", "i32"),
        ("tl.load(w_ptr + tl.program_id(1) * stride + columns)", "i32"),
    ],
)
def test_the_only_stride_of_a_tile_is_that_of_adjacent_elements(tmp_path, weights, stride):
    assert types_of(tmp_path, SCALED.replace("{weights}", weights))["stride"] == stride


ROTATED = """@triton.jit
def rotated(x_ptr, cos_ptr, y_ptr, stride_b, stride_s, N, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.program_id(0) % N
    {cos}
    tl.store(y_ptr + columns, tl.load(x_ptr + columns) * cos)


def run(x, cos):
    y = torch.empty_like(x)
    rotated[(4,)](x, cos, y, cos.stride(0), cos.stride(1), x.shape[0], BLOCK=512)
"""


@pytest.mark.parametrize(
    ("cos", "stride"),
    [
        ("cos = tl.load(cos_ptr + stride_b + row * stride_s + columns)", "i32"),
        ("cos_ptr += row * stride_s\n    cos = tl.load(cos_ptr + columns)", "i32"),
        ("cos = tl.load(cos_ptr + row * stride_b + columns * stride_s)", 1),
        ("cos = tl.load(cos_ptr + row * stride_s)", 1),
    ],
)
def test_a_stride_of_rows_beside_adjacent_columns_is_not_1(tmp_path, cos, stride):
    assert types_of(tmp_path, ROTATED.replace("{cos}", cos))["stride_s"] == stride


TILE = """@triton.jit
def tile(x_ptr, y_ptr, {parameters}):
    rows, columns = tl.arange(0, {rows}), tl.arange(0, F)
    at = rows[:, None] * F + columns[None, :]
    tl.store(y_ptr + at, tl.load(x_ptr + at) * 2)


def run(x):
    n, features = x.shape
    tile[(1,)](x, torch.empty_like(x), {passed})
"""
ROUNDED = "triton.next_power_of_2(features)"


@pytest.mark.parametrize("size", ["features", ROUNDED, f"max({ROUNDED}, 16)"])
@pytest.mark.parametrize(("rows", "side"), [(4, 1024), (16, 256), (128, 64)])
def test_an_assumed_side_of_a_tile_fits_registers(tmp_path, size, rows, side):
    passed = {"parameters": "R: tl.constexpr, F: tl.constexpr", "passed": f"R={rows}, F={size}"}
    assert types_of(tmp_path, TILE.format(rows="R", **passed))["F"] == side


def test_a_tile_of_one_assumed_side_keeps_it(tmp_path):
    passed = {"parameters": "F: tl.constexpr", "passed": f"F={ROUNDED}"}
    assert types_of(tmp_path, TILE.format(rows="4", **passed))["F"] == 1024


ALLOCATED = """@triton.jit
def scaled(x_ptr, y_ptr, lse_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * tl.load(lse_ptr + at))


def forward(x):
    lse = torch.empty(x.shape[0], device=x.device, dtype=torch.{first})
    return lse


def other(x):
    lse = torch.zeros(x.shape[0], dtype=torch.{second})
    return lse


def backward(x, lse, dtype: torch.dtype):
    y = torch.empty(x.shape, dtype=torch.float16)
    scaled[(1,)](x, y, lse, BLOCK=64)
    return y, lse.shape, x.to(torch.float16)
"""


@pytest.mark.parametrize(
    ("first", "second", "type_"),
    [
        ("float32", "float32", "*fp32"),
        ("int8", "int8", "*i8"),
        ("bfloat16", "bfloat16", "*bf16"),
        ("float32", "bfloat16", "*fp32"),
    ],
)
def test_a_tensor_has_the_type_with_which_its_module_allocates_it(tmp_path, first, second, type_):
    types = types_of(tmp_path, ALLOCATED.format(first=first, second=second))
    assert types["lse_ptr"] == type_


@pytest.mark.parametrize("place", ["before", "behind"])
def test_a_script_for_the_interpreter_is_compiled(tmp_path, place):
    switch = 'import os\nos.environ["TRITON_INTERPRET"] = "1"\n'
    head = switch + HEAD if place == "before" else HEAD + switch
    (tmp_path / "script.py").write_text(head + READS)
    (kernel,) = traceview.inspect_ptx(tmp_path / "script.py").kernels
    assert kernel.name == "reads"


FACTORY = """def make({parameters}):
    @triton.jit
    def scaled(x_ptr, y_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) * FACTOR)
    FACTOR = tl.constexpr(factor)
    return scaled


def run(x, y):
    make({arguments})[(1,)](x, y, BLOCK=128)
"""


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ("factor=2", ""),
        ("factor", "3"),
        ("factor, name", "3, 'x'"),
        ("*, factor, name: str = ''", "factor=3"),
        ("factor: int", "x.numel() // y"),
        ("factor: float", "unknown"),
    ],
)
def test_a_kernel_of_a_function_with_arguments(tmp_path, parameters, arguments):
    text = FACTORY.format(parameters=parameters, arguments=arguments)
    (tmp_path / "script.py").write_text(HEAD + text)
    (kernel,) = traceview.inspect_ptx(tmp_path / "script.py", kernel="scaled").kernels
    assert kernel.compiled.name == "scaled"


LISTED = """@triton.autotune(
    [triton.Config({{"BLOCK": size, "WIDTH": size}}) for size in {sizes}], key=[]
)
@triton.jit
def copied(x_ptr, y_ptr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))


def run(x, y):
    copied[(1,)](x, y)
"""


@pytest.mark.parametrize("sizes", [(1024, 64), (64, 1024), (512, 128, 64)])
def test_a_tile_that_no_registers_hold_is_compiled_last(tmp_path, sizes):
    """Of 128 threads one holds 255 values, of 181 × 181 that is the most."""
    (tmp_path / "script.py").write_text(HEAD + LISTED.format(sizes=sizes))
    kernels = traceview.inspect_ptx(tmp_path / "script.py").kernels
    found = [next(a.value for a in k.compiled.arguments if a.name == "BLOCK") for k in kernels]
    assert found == sorted(sizes, key=lambda size: size > 181)


STRIDED = """@triton.jit
def scaled(x_ptr, x_stride, y_ptr, y_stride, BLOCK: tl.constexpr):
    at = {address}
    tl.store(y_ptr + tl.program_id(0) * y_stride[0] + tl.arange(0, BLOCK), tl.load(x_ptr + at))


def run(x, y):
    scaled[(x.shape[0],)](x, x.stride(), y, y.stride(), BLOCK=1024)
"""


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_strides_that_are_passed_as_a_tuple(tmp_path, axes):
    """The last stride of a contiguous tensor is 1, those before it are multiples of 16."""
    terms = [f"tl.program_id({axis}) * x_stride[{axis}]" for axis in range(axes - 1)]
    address = " + ".join([*terms, f"tl.arange(0, BLOCK) * x_stride[{axes - 1}]"])
    (tmp_path / "script.py").write_text(HEAD + STRIDED.format(address=address))
    (kernel,) = traceview.inspect_ptx(tmp_path / "script.py").kernels
    names = [a.name for a in kernel.compiled.arguments if a.name.startswith("x_stride")]
    assert names == [f"x_stride[{axis}]" for axis in range(axes)]
    widths = {a.width_bits for a in kernel.accesses if (a.level, a.kind) == ("ptx", "load")}
    assert widths == ({128} if axes > 1 else {32})


ROWS = """@triton.jit
def scaled(x_ptr, y_ptr, C: tl.constexpr, BLOCK_C: tl.constexpr):
    at = tl.program_id(0) * C + tl.arange(0, BLOCK_C)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at))


def run(x, y):
    C = x.shape[1]
    scaled[(x.shape[0],)](x, y, C=C, BLOCK_C={block}{warps})
"""


@pytest.mark.parametrize(
    ("warps", "block", "length"),
    [
        (", num_warps=1", "C", 128),
        (", num_warps=2", "C", 256),
        (", num_warps=4", "C", 1024),
        ("", "C", 1024),
        (", num_warps=1", "512", 512),
    ],
)
def test_an_assumed_row_of_few_warps_is_short(tmp_path, warps, block, length):
    """What a call states stays."""
    (tmp_path / "script.py").write_text(HEAD + ROWS.format(warps=warps, block=block))
    (kernel,) = traceview.inspect_ptx(tmp_path / "script.py").kernels
    values = {a.name: a.value for a in kernel.compiled.arguments}
    assert values["BLOCK_C"] == length


STEPS = """@triton.jit
def steps(x_ptr, y_ptr, T: tl.constexpr, EACH: tl.constexpr, TIMES: tl.constexpr):
    offsets = tl.arange(0, 128)
    for t in tl.static_range({bounds}):
        tl.store(y_ptr + t * 128 + offsets, tl.load(x_ptr + t * 128 + offsets))


def run(x, y):
    steps[(1,)](x, y, x.shape[0], {each}, 2)
"""


@pytest.mark.parametrize(
    ("bounds", "each", "turns"),
    [("T", 1, 4), ("0, T, EACH", 1, 4), ("0, T, EACH * TIMES", 2, 16), ("0, T, EACH", 64, 1024)],
)
def test_an_assumed_bound_of_an_unrolled_loop_makes_few_turns(tmp_path, bounds, each, turns):
    found = types_of(tmp_path, STEPS.format(bounds=bounds, each=each))
    assert found["T"] == turns


@pytest.mark.parametrize("eps", ["eps", "1e-6"])
@pytest.mark.parametrize("type_", ["", ", dtype=torch.float16"])
def test_what_a_call_leaves_open_is_guessed(eps, type_, tmp_path):
    (tmp_path / "script.py").write_text(
        f"{HEAD}@triton.jit\ndef norm(x_ptr, y_ptr, N: tl.constexpr, EPS: tl.constexpr):\n"
        "    at = tl.arange(0, N)\n"
        "    tl.store(y_ptr + at, tl.load(x_ptr + at) * EPS)\n\n\n"
        "def run(x, eps: float):\n"
        f"    y = torch.empty_like(x{type_})\n    norm[(1,)](x, y, x.shape[-1], {eps})\n"
    )
    (kernel,) = traceview.inspect_ptx(tmp_path / "script.py").kernels
    guessed = ["x_ptr", *["y_ptr"] * (not type_), "N", *["EPS"] * (eps == "eps")]
    assert kernel.compiled.guessed == tuple(guessed)
    assert f"passes them, with {', '.join(guessed)} guessed: " in kernel.compiled.notes[0]
    shown = circumstances(kernel)
    assert f"guessed: N=1024{', EPS=1.0' * (eps == 'eps')}" in shown
    assert ("EPS=1e-06 · " in shown) is (eps != "eps")


ROW = """@triton.heuristics({{"num_warps": lambda args: args["SIDE"] // 8}})
@triton.jit
def row(x_ptr, y_ptr, SIDE: tl.constexpr, DEEP: tl.constexpr):
    {static}
    side, deep = tl.arange(0, SIDE), tl.arange(0, DEEP)
    at = side[:, None, None] * SIDE * DEEP + side[None, :, None] * DEEP + deep[None, None, :]
    total = tl.zeros({shape}, dtype=tl.float32) + tl.load(x_ptr + at)
    tl.store(y_ptr + at, total)


def run(x, side: int):
    width = x.shape[1]
    {asserted}
    row[(1,)](x, torch.empty_like(x), side, width)
"""


@pytest.mark.parametrize(
    ("static", "shape", "asserted", "expected"),
    [
        ("tl.static_assert(SIDE <= 16)", "(SIDE, SIDE, DEEP)", "pass", (16, 16, 2)),
        ("pass", "[SIDE, SIDE, DEEP]", "assert side in (8, 16) and width <= 8", (16, 8, 2)),
        # A tile that Triton refuses is halved until it does not.
        ("pass", "(1, 1, 1)", "assert side >= 64", (8, 16, 8)),
    ],
)
def test_sizes_that_the_kernel_and_its_wrapper_take(tmp_path, static, shape, asserted, expected):
    text = ROW.format(static=static, shape=shape, asserted=asserted)
    (tmp_path / "script.py").write_text(HEAD + text)
    (kernel,) = traceview.inspect_ptx(tmp_path / "script.py").kernels
    known = {a.name: a.value for a in kernel.compiled.arguments}
    assert (known["SIDE"], known["DEEP"], kernel.compiled.num_warps) == expected


@pytest.mark.parametrize("types", ["torch.float16, torch.bfloat16", "torch.bfloat16", "torch.int8"])
def test_types_that_the_wrapper_takes(tmp_path, types):
    text = (
        "@triton.jit\ndef copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n"
        "    at = tl.arange(0, BLOCK)\n    tl.store(y_ptr + at, tl.load(x_ptr + at))\n"
        f"def run(x, y):\n    assert x.dtype in [{types}]\n"
        "    copy[(1,)](x, y, x.numel(), BLOCK=256)\n"
    )
    (tmp_path / "script.py").write_text(HEAD + text)
    (kernel,) = traceview.inspect_ptx(tmp_path / "script.py").kernels
    short = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.int8": "i8"}
    assert kernel.compiled.arguments[0].type == "*" + short[types.partition(",")[0]]
    assert kernel.compiled.arguments[1].type == "*fp32"

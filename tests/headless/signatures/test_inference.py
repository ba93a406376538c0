"""Arguments guessed from source alone: no Triton needed."""

import ast

import pytest

from tests.places import TRITON_KERNELS
from tests.ptx.compiled_kernels import a_compiled, ptx_kernel
from traceview.kernels.headless.dataflow import Usage
from traceview.kernels.headless.inference import guess, in_words, kernels_among, parsed
from traceview.kernels.headless.signatures import Parameter, notation
from traceview.kernels.inspect.target_report import inspect


def functions_of(source: str) -> dict[str, ast.FunctionDef]:
    nodes = ast.parse(source).body
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def parameters_of(function: ast.FunctionDef) -> list[Parameter]:
    """As the decorator @triton.jit would see them."""
    arguments = function.args.args
    defaults = [None] * (len(arguments) - len(function.args.defaults)) + function.args.defaults
    return [
        Parameter(
            a.arg,
            a.annotation is not None and "constexpr" in ast.unparse(a.annotation),
            default is not None,
            ast.literal_eval(default) if default is not None else None,
        )
        for a, default in zip(arguments, defaults, strict=True)
    ]


def guessed(source: str, name: str, **given: object) -> str:
    functions = functions_of(source)
    usage = Usage(functions[name], functions)
    return notation(guess(parameters_of(functions[name]), usage, given))


def of_body(parameters: str, *body: str, **given: object) -> str:
    source = f"def kernel({parameters}):\n" + "".join(f"    {line}\n" for line in body)
    return guessed(source, "kernel", **given)


@pytest.mark.parametrize(
    ("file", "kernel", "expected"),
    [
        ("gelu", "gelu_kernel", "*fp32:16, *fp32:16, i32:16, 1024"),
        ("softmax", "softmax_kernel", "*fp32:16, *fp32:16, i32:16, i32:16, i32:16, 1024"),
        ("copies", "strided_copy", "*fp32:16, *fp32:16, i32:16, i32:16, 1024"),
        ("copies", "gather", "*fp32:16, *i64:16, *fp32:16, i32:16, 1024"),
        ("copies", "row_sum", "*fp32:16, *fp32:16, i32:16, fp32, 512"),
        ("copies", "histogram", "*i64:16, *i32:16, i32:16, 1024"),
        (
            "matmul",
            "matmul_kernel",
            "*fp16:16, *fp16:16, *fp16:16, i32:16, i32:16, i32:16, "
            "i32:16, 1, i32:16, 1, i32:16, 1, 64, 64, 32, ''",
        ),
    ],
)
def test_kernels_of_the_examples(file, kernel, expected):
    assert guessed((TRITON_KERNELS / f"{file}.py").read_text(), kernel) == expected


def test_a_pointer_is_what_an_address_begins_with_whatever_its_name():
    found = of_body(
        "data, base, n",
        "where = data + base",
        "where += tl.arange(0, 64)",
        "tl.store(where, tl.load(where) + n)",
    )
    assert found == "*fp32:16, i32:16, i32:16"


@pytest.mark.parametrize(
    ("test", "first", "second"),
    [
        ("not FROM_TENSOR", "rows += start", "rows += tl.load(start)"),
        ("FROM_TENSOR", "rows += tl.load(start)", "rows += start"),
    ],
)
@pytest.mark.parametrize(("given", "type_"), [({}, "i32"), ({"FROM_TENSOR": True}, "*i64:16")])
def test_a_pointer_in_one_branch_of_a_flag_is_a_number_in_the_other(
    test, first, second, given, type_
):
    found = of_body(
        "x, start, FROM_TENSOR: tl.constexpr",
        "rows = tl.arange(0, 64)",
        f"if {test}:",
        f"    {first}",
        "else:",
        f"    {second}",
        "tl.store(x + rows, 0.0)",
        **given,
    )
    assert found == f"*fp32:16, {type_}, {bool(given)}"


def test_a_name_decides_where_the_pointer_does_not_come_first():
    assert of_body("n, x_ptr", "tl.load(n + x_ptr)") == "i32:16, *fp32:16"


def test_block_pointers_and_descriptors():
    found = of_body(
        "q, k, n",
        "block = tl.make_block_ptr(base=q, shape=(n,))",
        "tl.load(tl.advance(block, (64,)))",
        "desc = tl.make_tensor_descriptor(k, [n], [1], [64])",
        "desc.load([0])",
    )
    assert found == "*fp32:16, *fp32:16, i32:16"


def test_the_type_of_what_is_stored_follows_its_cast():
    found = of_body("x, n", "y = n.to(tl.float32)", "y = y.to(tl.bfloat16)", "tl.store(x, y)")
    assert found == "*bf16:16, i32:16"


def test_a_helper_that_calls_itself_does_not_go_round_for_ever():
    source = "def f(x):\n    f(x)\n    tl.load(x)\n"
    assert guessed(source, "f") == "*fp32:16"


def test_a_name_assigned_from_itself_does_not_go_round_for_ever():
    assert of_body("x", "p = x", "p = p + 1", "tl.load(p)") == "*fp32:16"


def test_constexprs_by_use_and_by_name():
    found = of_body(
        "x, BLOCK: tl.constexpr, KIND: tl.constexpr, T: tl.constexpr, CAUSAL: tl.constexpr, "
        "MASKED: tl.constexpr, GROUP_M: tl.constexpr, HEAD_DIM: tl.constexpr",
        "if KIND == 'a' and MASKED:",
        "    pass",
        "if MASKED:",
        "    tl.store(x, tl.load(x).to(T))",
    )
    assert found == "*fp32:16, 1024, '', tl.float32, False, False, 8, 64"


def test_what_is_given_is_not_guessed():
    assert of_body("x, B: tl.constexpr", "tl.load(x)", B=32) == "*fp32:16, 32"


def test_an_annotated_type_is_taken():
    function = parsed("def kernel(n, p):\n    pass\n")
    parameters = [Parameter("n", type="i64"), Parameter("p", type="*fp16")]
    assert notation(guess(parameters, Usage(function))) == "i64:16, *fp16:16"


def test_floats_and_seeds():
    assert of_body("eps, sm_scale, seed, p", "pass") == "fp32, fp32, i32, fp32"


def test_helpers_are_no_kernels():
    functions = functions_of((TRITON_KERNELS / "copies.py").read_text())
    assert kernels_among(functions) == ["strided_copy", "gather", "row_sum", "histogram"]


def test_a_guess_is_called_a_guess_and_can_be_corrected():
    function = parsed("def kernel(x_ptr, B: tl.constexpr):\n    tl.load(x_ptr)\n")
    said = in_words(guess(parameters_of(function), Usage(function)))
    assert said == (
        "arguments are guessed: x_ptr *fp32:16, B = 64; "
        'correct them with --signature "*fp32:16, 64"'
    )


@pytest.mark.parametrize(("how", "told"), [("guessed", True), ("declared", False)])
def test_what_is_found_in_a_guess_says_so(how, told):
    narrow = a_compiled(ptx_kernel(".loc 1 31 0\n ld.global.b32 %r4, [%rd3];"), how=how)
    (finding,) = inspect(narrow, sass=False).findings
    assert finding.evidence.basis.endswith("; for guessed arguments") == told


def test_a_product_in_a_helper_makes_small_blocks():
    source = """
def product(a, b, total, PRECISION: tl.constexpr):
    return tl.dot(a, b, total, input_precision=PRECISION)

def kernel(a_ptr, b_ptr, c_ptr, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = product(tl.load(a_ptr + at), tl.load(b_ptr + at), 0.0, PRECISION)
    tl.store(c_ptr + at, total)
"""
    assert guessed(source, "kernel") == "*fp16:16, *fp16:16, *fp32:16, 32, None"


def test_descriptors_are_what_has_a_method_to_load():
    source = """
def kernel(a, b, c_ptr, n):
    x = a.load([0, 0]) + tl.load(c_ptr)
    b.store([0, 0], x)
"""
    assert Usage(functions_of(source)["kernel"]).descriptors == ("a", "b")


@pytest.mark.parametrize(
    ("strides", "found"),
    [
        # One tensor each, by their names.
        ("stride_xm, stride_xk", "i32:16, 1"),
        ("x_ptr, stride_m, stride_n", "*fp32:16, i32:16, 1"),
        ("x_ptr, stride_0, stride_1", "*fp32:16, i32:16, 1"),
        ("Q, stride_b, stride_h, stride_d", "*fp32:16, i32:16, i32:16, 1"),
        ("x, X_STRIDE_B, X_STRIDE_D, out_stride_0, out_stride_1", "*fp32:16, i32:16, 1, i32:16, 1"),
        # Two tensors of each kind.
        ("stride_am1, stride_am2, stride_ak1, stride_ak2", "i32:16, i32:16, 1, 1"),
        # The rows of two tensors: a 1 would be no kernel that anybody runs.
        ("x, stride_x, stride_y", "*fp32:16, i32:16, i32:16"),
        ("Q, K, stride_q, stride_k", "*fp32:16, *fp32:16, i32:16, i32:16"),
        ("x_ptr, stride_a, stride_b", "*fp32:16, i32:16, i32:16"),
    ],
)
def test_which_stride_is_one(strides, found):
    loads = [f"tl.load({name})" for name in strides.split(", ") if "stride" not in name.lower()]
    assert of_body(strides, *(loads or ["pass"])) == found


ROWS = ("rows[:, None] * stride_n", "(rows * stride_n)[:, None]", "(4 * stride_n) * rows[:, None]")
COLUMNS = ("columns[None, :]", "(columns % 64 + 8)[None, :]", "(2 * i + columns)[None, :]")


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_of_adjacent_columns_are_apart(rows, columns):
    body = "rows, columns, i = tl.arange(0, 64), tl.arange(0, 64), 3"
    parameters = "x, stride_h, stride_n"
    for terms in ((rows, columns), (columns, rows)):
        load = f"tl.load(x + {' + '.join(terms)})"
        assert of_body(parameters, body, load) == "*fp32:16, i32:16, i32:16"
    # Columns of which nothing says that they are adjacent.
    for other in ("columns[None, :] * 8", "(columns // 8)[None, :]", "i"):
        assert of_body(parameters, body, f"tl.load(x + {rows} + {other})").endswith(", 1")


def test_what_a_helper_shifts_or_masks_is_an_integer():
    source = (
        "def low_bits(word, shift):\n"
        "    if shift:\n"
        "        word = word >> 8\n"
        "    return word & 15\n"
        "def unpacked(word):\n"
        "    return low_bits(word, True)\n"
        "def kernel(q_ptr, y_ptr, n):\n"
        "    word = tl.load(q_ptr + n)\n"
        "    tl.store(y_ptr + n, unpacked(word))\n"
    )
    assert guessed(source, "kernel") == "*i32:16, *fp32:16, i32:16"


def test_the_position_of_a_value_says_nothing_of_its_type():
    found = of_body(
        "x_ptr, index_ptr, y_ptr, n",
        "values = tl.load(x_ptr + n)",
        "at = tl.argmax(values, 0) + (values > 0)",
        "tl.store(y_ptr + n, tl.load(index_ptr + at))",
    )
    assert found.startswith("*fp32:16, *i32:16, ")


def test_an_address_is_the_last_that_was_assigned_to_a_name():
    found = of_body(
        "scales_ptr, zeros_ptr, y_ptr, n",
        "at = scales_ptr + n",
        "at += n",
        "scales = tl.load(at)",
        "at = zeros_ptr + n",
        "zeros = tl.load(at)",
        "tl.store(y_ptr + n, scales * ((zeros >> 4) & 15))",
    )
    assert found == "*fp32:16, *i32:16, *fp32:16, i32:16"


def test_a_loop_with_a_step_has_fewer_turns_than_its_bound():
    source = (
        "def kernel(x, N: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):\n"
        "    for k in tl.static_range(0, K, BLOCK):\n"
        "        for n in tl.static_range(N):\n"
        "            tl.store(x + k, n)\n"
    )
    unrolled = Usage(parsed(source)).unrolled
    steps = {name: step and ast.unparse(step) for name, step in unrolled.items()}
    assert steps == {"N": None, "K": "BLOCK"}


def test_a_constexpr_may_be_a_number():
    names = ("eps_low", "temperature", "sm_scale", "P", "SIZE")
    parameters = [Parameter(name, is_constexpr=True) for name in names]
    usage = Usage(parsed(f"def kernel({', '.join(names)}): pass"))
    values = {a.name: a.value for a in guess(parameters, usage)}
    assert values == dict.fromkeys(names[:3], 1.0) | dict.fromkeys(names[3:], 64)


def test_what_is_exponentiated_is_no_operand_of_half_precision():
    source = (
        "def kernel(a_ptr, decay_ptr, out_ptr, BLOCK: tl.constexpr):\n"
        "    at = tl.arange(0, BLOCK)\n"
        "    a = tl.load(a_ptr + at)\n"
        "    a = a * tl.math.exp2(tl.load(decay_ptr + at))\n"
        "    tl.store(out_ptr + at, tl.dot(a, a))\n"
    )
    pointers = Usage(parsed(source)).pointers
    assert (pointers["a_ptr"], pointers["decay_ptr"]) == ("fp16", None)


def test_the_last_of_the_strides_of_a_tensor_that_are_named_in_words():
    names = ["x", "stride_input_token", "stride_input_hidden", "stride_map_row", "stride_of_all"]
    parameters = [Parameter(name) for name in names]
    guessed = guess(parameters, Usage(parsed(f"def kernel({', '.join(names)}): tl.load(x)")))
    assert [a.name for a in guessed if a.value == 1] == ["stride_input_hidden"]


def test_the_stride_of_a_scale_is_an_integer():
    names = ["x", "stride_scale_k", "reciprocal_scale_h"]
    usage = Usage(parsed(f"def kernel({', '.join(names)}): tl.load(x)"))
    types = {a.name: a.type for a in guess([Parameter(name) for name in names], usage)}
    assert (types["stride_scale_k"], types["reciprocal_scale_h"]) == ("i32", "fp32")


def test_what_is_cast_to_an_integer_at_once_is_one():
    body = ("at = tl.load(length_ptr).to(tl.int32)", "tl.store(y_ptr + tl.arange(0, 16), at * 1.5)")
    assert of_body("length_ptr, y_ptr", *body) == "*i64:16, *fp32:16"
    assert of_body("token_cnts_ptr", "tl.store(token_cnts_ptr, 1)") == "*i32:16"


def test_what_a_helper_returns_is_an_operand():
    source = (
        "def loaded(k_ptr, v_ptr, at):\n    k = tl.load(k_ptr + at)\n"
        "    return k, tl.load(v_ptr + at)\n"
        "def product(a, b):\n    return tl.dot(a, b)\n"
        "def kernel(q_ptr, k_ptr, v_ptr, w_ptr):\n"
        "    at = tl.arange(0, 16)\n"
        "    k, v = loaded(k_ptr, v_ptr, at)\n"
        "    tl.store(w_ptr + at, product(product(tl.load(q_ptr + at), k), v))\n"
    )
    assert guessed(source, "kernel") == "*fp16:16, *fp16:16, *fp16:16, *fp32:16"


def test_the_settings_of_a_convolution_are_small():
    given = (
        "x_ptr, kernel_height: tl.constexpr, stride_height: tl.constexpr, "
        "padding_height: tl.constexpr, dilation_h: tl.constexpr"
    )
    assert of_body(given, "tl.store(x_ptr, 1)") == "*fp32:16, 3, 1, 1, 1"
    assert of_body("x_ptr, stride_h: tl.constexpr", "tl.store(x_ptr, 1)") == "*fp32:16, 1024"


def test_strides_that_are_named_behind_their_tensor():
    names = "x_ptr, y_ptr, x_stride_row, x_stride_col, y_stride_row, y_stride_col, B: tl.constexpr"
    address = "{0} + tl.program_id(0) * {0}_stride_row + tl.arange(0, B) * {0}_stride_col"
    load, store = (
        address.format(each).replace(f"{each} +", f"{each}_ptr +") for each in ("x", "y")
    )
    found = of_body(names, f"tl.store({store}, tl.load({load}))")
    assert found == "*fp32:16, *fp32:16, i32:16, 1, i32:16, 1, 64"
    # Columns that are not scaled are adjacent, and rows are not.
    rows = "x_ptr, x_stride_batch, x_stride_row, B: tl.constexpr"
    body = (
        "a = x_ptr + tl.program_id(0) * x_stride_batch + tl.program_id(1) * x_stride_row",
        "tl.store(a + tl.arange(0, B), tl.load(a + tl.arange(0, B)))",
    )
    assert of_body(rows, *body) == "*fp32:16, i32:16, i32:16, 64"


@pytest.mark.parametrize("size", ["K", "V", "HD", "N"])
@pytest.mark.parametrize("step", ["-{0} if REVERSE else {0}", "{0}", "(T - 1) * {0}"])
def test_a_constexpr_that_moves_an_address_is_no_pointer(size, step):
    body = [
        "p = q + tl.program_id(0) * s + tl.arange(0, BLOCK)",
        f"p += {step.format(size)}",
        "tl.store(o + tl.arange(0, BLOCK), tl.load(p))",
    ]
    known = f"q, o, s, T, {size}: 'tl.constexpr', REVERSE: tl.constexpr, BLOCK: tl.constexpr"
    said = of_body(known, *body)
    assert said.startswith("*fp32:16, *fp32:16, i32:16, i32:16, 64, ")


@pytest.mark.parametrize("sides", [("BK", "BV"), ("BD", "BS"), ("BC", "BM")])
def test_two_sides_of_a_tile_are_smaller_than_one(sides):
    first, second = sides
    body = [
        f"at = tl.arange(0, {first})[:, None] * 64 + tl.arange(0, {second})[None, :]",
        "tl.store(x + at, 0.0)",
    ]
    said = of_body(f"x, {first}: tl.constexpr, {second}: tl.constexpr", *body)
    assert said == "*fp32:16, 64, 64"


@pytest.mark.parametrize("used", ["w >> at", "w & 15", "(w >> at) & 3", "(w << 8) | 1"])
@pytest.mark.parametrize(
    ("cast", "element"), [("", "i32"), (".to(tl.int32)", "u8"), (".to(tl.uint8)", "u8")]
)
def test_words_that_are_cast_before_they_are_shifted_are_narrower(used, cast, element):
    body = [
        "at = tl.arange(0, BLOCK)",
        f"w = tl.load(packed + at){cast}",
        f"tl.store(y + at, {used})",
    ]
    said = of_body("packed, y, bits: tl.constexpr, BLOCK: tl.constexpr", *body)
    assert said == f"*{element}:16, *fp32:16, 4, 1024"


@pytest.mark.parametrize(
    ("stored", "type_"),
    [("tl.dot(a, a)", "tl.float16"), ("a + a", "tl.float32")],
    ids=["an operand of a product", "no operand"],
)
def test_the_type_that_loads_are_cast_to(stored, type_):
    body = ["a = tl.load(x + tl.arange(0, 16)).to(DTYPE)", f"tl.store(y, {stored})"]
    assert of_body("x, y, DTYPE: tl.constexpr", *body).endswith(type_)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("left", "type_"), [("e2m1", "u8"), ("e4m3", "fp8e4nv"), ("e5m2", "fp8e5")]
)
def test_scaled_products_take_bytes_and_their_formats(left, type_, named):
    format_ = f'rhs_format="{left}"' if named else f'"{left}"'
    found = of_body(
        "a, a_scale, b, b_scale, c",
        "at = tl.arange(0, 64)",
        "x = tl.load(a + at)",
        "s = tl.load(a_scale + at)",
        f'total = tl.dot_scaled(x, s, "e2m1", tl.load(b + at), tl.load(b_scale + at), {format_})',
        "tl.store(c + at, total)",
    )
    assert found == f"*u8:16, *u8:16, *{type_}:16, *u8:16, *fp32:16"


@pytest.mark.parametrize("scaled", ["", " / n", " * 2 + 1"])
def test_what_sums_are_added_to_has_the_type_of_the_sums(scaled):
    found = of_body(
        "x_ptr, total_ptr, n",
        "x = tl.load(x_ptr + tl.arange(0, 64)).to(tl.float64)",
        f"total = tl.sum(x, axis=0, dtype=tl.float64){scaled}",
        "tl.atomic_add(total_ptr, total)",
    )
    assert found.split(", ")[1] == "*fp64:16"


@pytest.mark.parametrize("tensors", [("s_qk",), ("s_k", "s_v"), ("s_h", "s_qk", "s_vo")])
@pytest.mark.parametrize("dimensions", ["td", "htd", "bhk"])
def test_short_names_of_strides(tensors, dimensions):
    names = [f"{tensor}_{each}" for tensor in tensors for each in dimensions]
    source = f"def kernel(x, {', '.join(names)}, s_n, T): tl.load(x)"
    parameters = [Parameter(name) for name in ("x", *names, "s_n", "T")]
    guessed = guess(parameters, Usage(parsed(source)))
    last = [f"{tensor}_{dimensions[-1]}" for tensor in tensors]
    assert [a.name for a in guessed if a.value == 1] == last


def test_what_a_call_leaves_open_is_said_to_be_guessed():
    function = parsed("def kernel(x_ptr, n, B: tl.constexpr):\n    tl.load(x_ptr)\n")
    arguments = guess(parameters_of(function), Usage(function))
    text = in_words(arguments, "run.py:7", guessed=["x_ptr", "B"])
    assert text.startswith(
        "arguments are as the call at run.py:7 passes them, with x_ptr, B guessed: "
    )

"""Triton's signature notation, read and written."""

import pytest

from traceview.base.errors import InputError
from traceview.kernels.headless import signatures as declared
from traceview.kernels.headless.signatures import Parameter, bind, notation, value_of
from traceview.kernels.ptx.model import Argument

GELU = (
    Parameter("x_ptr"),
    Parameter("y_ptr"),
    Parameter("n"),
    Parameter("BLOCK", is_constexpr=True),
)


def test_types_hints_and_values():
    assert bind("*fp32:16, *bf16, i32:16, 1024", GELU, {}) == (
        Argument("x_ptr", "*fp32", divisible_by_16=True),
        Argument("y_ptr", "*bf16"),
        Argument("n", "i32", divisible_by_16=True),
        Argument("BLOCK", "constexpr", value=1024),
    )


@pytest.mark.parametrize("value", [512, True, None, 0.5, -3, "tl.float16", "tanh"])
def test_a_value_is_written_as_it_is_read(value):
    assert value_of(declared.as_written("BLOCK", value)) == value


def test_of_a_list_each_value_is_written():
    given = {"BLOCK": [256, "1024"], "EVEN": True}
    assert declared.all_as_written(given) == {"BLOCK": ["256", "1024"], "EVEN": "True"}


def test_what_has_no_notation_is_refused():
    with pytest.raises(
        InputError, match="constexpr ACC has the unsupported type object; pass a number or a string"
    ):
        declared.as_written("ACC", object())


def test_an_argument_of_one_is_a_constexpr():
    assert bind("*fp32, *fp32, i32:1, 64", GELU, {})[2] == Argument("n", "constexpr", value=1)


def test_constexprs_may_be_left_out_of_the_signature():
    assert bind("*fp32, *fp32, i32", GELU, {"BLOCK": 64})[3].value == 64


def test_constexprs_win_over_the_signature():
    assert bind("*fp32, *fp32, i32, 128", GELU, {"BLOCK": 64})[3].value == 64


def test_defaults_of_constexprs_hold():
    parameters = (*GELU[:3], Parameter("BLOCK", True, True, 256))
    assert bind("*fp32, *fp32, i32", parameters, {})[3].value == 256


def test_commas_in_brackets_and_quotes_do_not_separate():
    found = bind("tensordesc<fp16[64, 32]>, 'a,b', i32, 1", GELU, {})
    assert [(a.type, a.value) for a in found[:2]] == [
        ("tensordesc<fp16[64, 32]>", None),
        ("constexpr", "a,b"),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64),
        ("1e-6", 1e-6),
        ("True", True),
        ("None", None),
        ("relu", "relu"),
        ("'1'", "1"),
        ("tl.float16", "tl.float16"),
        ("(1, 2)", "(1, 2)"),
    ],
)
def test_values_on_the_command_line(text, value):
    found = value_of(text)
    assert (found, type(found)) == (value, type(value))


def test_what_is_written_reads_the_same():
    arguments = (
        Argument("x_ptr", "*fp16", divisible_by_16=True),
        Argument("y_ptr", "constexpr", value="tl.float16"),
        Argument("n", "constexpr", value="relu, 'x'"),
        Argument("BLOCK", "constexpr", value=None),
    )
    assert bind(notation(arguments), GELU, {}) == arguments


@pytest.mark.parametrize(
    ("signature", "constexprs", "words"),
    [
        ("*fp32", {}, "1 entry, but the kernel has 4 parameters"),
        ("*fp32, i32", {}, "2 entries, but the kernel has 4 parameters.*x_ptr, y_ptr, n, BLOCK"),
        ("*fp32, *fp32, in32, 64", {}, "signature entry 'in32' for n is neither"),
        ("*fp32:8, *fp32, i32, 64", {}, "unknown hint :8 for x_ptr.*:16"),
        ("*fp32,, i32, 64", {}, "empty entry"),
        ("", {}, "empty entry|0 entries|1 entry"),
        ("*fp32, *fp32, i32, 64", {"BLOK": 1}, "no parameter 'BLOK'.*x_ptr, y_ptr, n, BLOCK"),
        ("*fp32, *fp32, i32, 64:16", {}, "'64:16'"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(signature, constexprs, words):
    with pytest.raises(InputError, match=words) as caught:
        bind(signature, GELU, constexprs)
    assert "\n" not in str(caught.value)


def test_a_type_of_data_is_told_from_text():
    assert declared.dtype_name("tl.bfloat16") == "bfloat16"
    assert declared.dtype_name("relu") is None

"""Element types that the source states: in assertions and in comments."""

import ast
import textwrap

import pytest

from traceview.kernels.headless.dataflow import Usage
from traceview.kernels.headless.signatures import commented_types

KERNEL = """
def kernel(
    x_ptr,{of_x}
    y_ptr,{of_y}
    n,
):{after}
    v = tl.load(x_ptr + n)
    {assertion}
    tl.store(y_ptr + n, v)
"""


def pointers(of_x="", of_y="", after="", assertion="pass"):
    text = KERNEL.format(of_x=of_x, of_y=of_y, after=after, assertion=assertion).lstrip()
    (function,) = ast.parse(textwrap.dedent(text)).body
    return Usage(function, stated=commented_types(text, function)).pointers


@pytest.mark.parametrize("name", ["int8", "uint8", "float16", "int64"])
def test_an_assertion_on_a_pointer_or_on_what_was_loaded(name):
    short = {"int8": "i8", "uint8": "u8", "float16": "fp16", "int64": "i64"}[name]
    for tested in ("v.dtype", "x_ptr.dtype.element_ty"):
        found = pointers(assertion=f"tl.static_assert({tested} == tl.{name})")
        assert found == {"x_ptr": short, "y_ptr": None}


@pytest.mark.parametrize(
    ("comments", "types"),
    [
        ({"of_x": "  # [T, 512] bf16", "of_y": "  # bool"}, {"x_ptr": "bf16", "y_ptr": "i1"}),
        ({"after": "  # y_ptr: a scalar int32 tensor"}, {"x_ptr": None, "y_ptr": "i32"}),
        ({"of_x": "  # the input"}, {"x_ptr": None, "y_ptr": None}),
        ({"after": "  # all of float16"}, {"x_ptr": None, "y_ptr": None}),
    ],
)
def test_comments_on_parameters(comments, types):
    assert pointers(**comments) == types


@pytest.mark.parametrize(
    ("name", "type_"),
    [("w_int8", "i8"), ("packed_uint8", "u8"), ("x_float32", "fp32"), ("x_8", None), ("w", None)],
)
@pytest.mark.parametrize("carried", [False, True])
def test_what_is_loaded_may_be_named_after_its_type(name, type_, carried):
    loop = "\n    for k in range(n):\n        at += n\n" if carried else "\n"
    text = f"def kernel(x_ptr, y_ptr, n):\n    at = x_ptr + n{loop}    {name} = tl.load(at)\n"
    text += f"    other = {name}.to(tl.float16)\n    tl.store(y_ptr + n, other)\n"
    (function,) = ast.parse(text).body
    assert Usage(function).pointers["x_ptr"] == type_


@pytest.mark.parametrize("end", ["", "_ptr"])
@pytest.mark.parametrize(
    ("word", "type_"),
    [
        *(("u8", "u8"), ("i32", "i32"), ("f32", "fp32"), ("fp16", "fp16"), ("BF16", "bf16")),
        *(("int8", "i8"), ("half", None), ("8", None), ("scale", None)),
    ],
)
def test_a_pointer_may_be_named_after_its_type(word, type_, end):
    name = f"pool_{word}{end}"
    text = f"def kernel({name}, y_ptr, n):\n    tl.store(y_ptr + n, tl.load({name} + n))\n"
    (function,) = ast.parse(text).body
    assert Usage(function).pointers[name] == type_

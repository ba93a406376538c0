"""Sizes and strides that a helper of the module returns."""

import ast

import pytest

from traceview.kernels.headless.project.assumed_tensor import UNKNOWN
from traceview.kernels.headless.project.launch_arguments import scope_at

MODULE = """
def sizes(x, dim):
    if dim == 0:
        return x.shape[1], x.shape[0], x.stride(1), x.stride(0)
    rows, columns = x.shape[0], x.shape[1]
    return rows, columns, x.stride(0), x.stride(1)

def launch(x, {parameters}):
    rows, columns, outer, inner = sizes(x, {passed})
    kernel[grid](x, rows, columns, outer, inner)
"""


@pytest.mark.parametrize(
    ("parameters", "passed", "strides"),
    [("dim: int", "dim", (1024, 1)), ("y", "0", (1, 1024)), ("y", "1", (1024, 1))],
)
def test_the_strides_of_a_helper(parameters, passed, strides):
    module = ast.parse(MODULE.format(parameters=parameters, passed=passed))
    function = module.body[-1]
    call = function.body[-1].value
    scope = scope_at(call, function, module, {})
    assert (scope.known["outer"], scope.known["inner"]) == strides


# Statements that set `out`, and its value.
STATEMENTS = {
    "out = 3; out += 4": 7,
    "out: int = 3": 3,
    "(a, out), b = (1, 2), 3": 2,
    "*a, out = x.stride()": 1,
    "with torch.no_grad(): out = 5": 5,
    "assert bits in (8, 4, 2); out = bits": 4,
    "if x.is_cuda: out = 1\n    else: out = 2": 1,
}


@pytest.mark.parametrize("statements", STATEMENTS)
def test_a_helper_is_followed_as_its_caller_is(statements):
    """What statements set is the same where the launch is made and in a helper."""
    inline = f"def launch(x, bits):\n    {statements}\n    kernel[grid](out)\n"
    helper = f"def helper(x, bits):\n    {statements}\n    return out\n"
    called = f"{helper}\ndef launch(x, bits):\n    out = helper(x, bits)\n    kernel[grid](out)\n"
    for text in (inline, called):
        module = ast.parse(text.replace("; ", "\n    "))
        function = module.body[-1]
        function.args.args[0].annotation = ast.parse("torch.Tensor", mode="eval").body
        scope = scope_at(function.body[-1].value, function, module, {})
        assert scope.known["out"] == STATEMENTS[statements]


@pytest.mark.parametrize(
    "last", ["for i in range(9): out += i", "raise ValueError", "while out: out -= 1"]
)
def test_what_a_helper_returns_behind_a_loop_or_an_error_is_unknown(last):
    text = f"def helper(x):\n    out = 3\n    {last}\n    return out\n"
    module = ast.parse(
        f"{text}\ndef launch(x):\n    out = helper(x.shape[0])\n    kernel[grid](out)\n"
    )
    function = module.body[-1]
    scope = scope_at(function.body[-1].value, function, module, {})
    assert scope.known["out"] is UNKNOWN

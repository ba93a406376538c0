"""Sizes and strides that a helper of the module returns."""

import ast

import pytest

from traceview.headless.project.launch_arguments import scope_at

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

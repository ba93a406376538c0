"""Assertions on compiled kernels, for tests without a GPU; they report what is not as expected.

from traceview.testing import assert_kernel, assert_widths

def test_gelu_is_vectorized():
    assert_widths(gelu_kernel, signature="*fp32:16, *fp32:16, i32:16, 1024")

def test_gelu_fits():
    assert_kernel("gelu.py:gelu_kernel", "spills = 0, registers <= 64")
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from traceview.base.errors import InputError

if TYPE_CHECKING:
    from traceview.kernels.headless.signatures import Value
    from traceview.kernels.inspect.target_report import PtxReport

__all__ = ["assert_kernel", "assert_widths"]

_SPACES = ("global", "shared", "local")
_KINDS = ("load", "store", "atomic")


def assert_kernel(
    target: Any,
    *expectations: str,
    kernel: str | None = None,
    arch: str | None = None,
    signature: str | None = None,
    constexprs: Mapping[str, Value] | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    arguments: str | Sequence[str] = (),
) -> PtxReport:
    """Assert that kernels are as expected; return the report on them.

    `target` is a @triton.jit function, which needs a `signature` ("*fp32:16, i32:16, 1024"), or
    any target of `traceview ptx`. Each of `expectations` is a text such as
    "gelu*: global load >= 128, spills = 0"; without a name it applies to every kernel. The options
    are those of `traceview.inspect_ptx`.

    Raises AssertionError with a line per expectation that is not met, InputError if one is not
    understood or the target cannot be compiled, and ToolNotFoundError where a tool is missing.
    """
    __tracebackhide__ = True
    from dataclasses import replace

    from traceview.kernels.headless.compile_options import CompileOptions
    from traceview.kernels.headless.signatures import as_written
    from traceview.kernels.inspect.expectations import judge, parse_all, unmet
    from traceview.kernels.inspect.target_report import inspect_function, inspect_target

    expected = parse_all(expectations)
    if not expected:
        raise InputError("nothing is expected", 'pass, for example, "global load >= 128"')
    options = CompileOptions(
        kernel=kernel,
        arch=arch,
        signature=signature,
        constexprs={name: as_written(name, value) for name, value in (constexprs or {}).items()},
        num_warps=num_warps,
        num_stages=num_stages,
        arguments=(arguments,) if isinstance(arguments, str) else tuple(arguments),
    )
    if isinstance(target, (str, PathLike)):
        report = inspect_target(str(target), options)
    else:
        report = inspect_function(target, options)
    report = replace(report, verdicts=judge(expected, report.kernels))
    lines = unmet(report.verdicts)
    if lines:
        raise AssertionError("\n".join([f"{report.target}: not as expected", *lines]))
    return report


def assert_widths(
    target: Any,
    at_least: int = 128,
    *,
    space: str = "global",
    kinds: str | Collection[str] = ("load", "store"),
    in_loops: bool = False,
    **options: Any,
) -> PtxReport:
    """Assert that memory accesses move `at_least` bits per thread per instruction, or more.

    By default these are the loads and the stores of global memory; every kernel of `target` must
    have both. `kinds` are among load, store and atomic; `in_loops` leaves out accesses outside
    loops. An access whose address is the same for all threads moves one value, and is left out.
    `options` and the errors raised are those of `assert_kernel`.
    """
    __tracebackhide__ = True
    wanted = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    if space not in _SPACES or not wanted or set(wanted) - set(_KINDS):
        remedy = f"space is one of {', '.join(_SPACES)}, kinds are of {', '.join(_KINDS)}"
        raise InputError(f"there are no {space} accesses of kinds {', '.join(wanted)}", remedy)
    loops = " in loops" if in_loops else ""
    conditions = [f"{space} {kind}{loops} >= {at_least}" for kind in wanted]
    return assert_kernel(target, ", ".join(conditions), **options)

"""Kernels that Triton refuses, and grids of which the kernel ignores an axis."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis

_REFUSED = Diagnosis(
    "Triton refuses to compile the kernel: at {line} it reads the global {name}, which is no "
    "tl.constexpr; the code shown is compiled as if it were",
    "Define it as {name} = tl.constexpr(…), or pass it as a tl.constexpr parameter",
    "high",
)


def plain_globals(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A global that the kernel reads although it is no constant for Triton."""
    if kernel.compiled.plain_global:
        name, source = kernel.compiled.plain_global
        yield CodeClaim(
            _REFUSED,
            {"line": line_name(source), "name": name, "proven": True},
            "the error of Triton's compiler",
            source,
        )

"""Reports on Triton kernels that are compiled, and recompiled, in the test's own process."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.inspect.rules.written_ptx import need
from traceview.base.errors import TraceviewError
from traceview.base.findings import Finding
from traceview.base.hardware import limits_of
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.headless.recompile import changed_arguments
from traceview.kernels.headless.signatures import argument
from traceview.kernels.inspect.kernel_report import KernelReport
from traceview.kernels.inspect.recompilations import Recompile
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.ptx.model import Argument, Compiled


def allow(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let Triton compile here, with its cache in a folder; skip where something is missing.

    The cache may be that of the session, as it holds what Triton made of the same source.
    """
    pytest.importorskip("triton", reason="compiles with Triton", exc_type=ImportError)
    need("ptxas", "nvdisasm")
    patch.setenv("TRITON_CACHE_DIR", str(folder))
    patch.delenv("TRITON_INTERPRET", raising=False)
    # What is the default anyway, and what Triton 3.9 warns of unless it is said.
    patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@dataclass
class Retried:
    """A kernel as declared, and the changes that were asked for while it was inspected.

    Without `sass`, which takes nvdisasm a quarter of a second and more, rules see the PTX alone.
    """

    kernel: Any
    signature: str
    arch: str = "sm_90"
    num_warps: int = 4
    num_stages: int = 3
    with_ttgir: bool = False
    sass: bool = True
    changes: list[Change] = field(default_factory=list)

    def report(self, grid: tuple[int, int, int] | None = None, **options: Any) -> KernelReport:
        compiled = self._unchanged(grid)
        return inspect(compiled, recompile=self._again(compiled), sass=self.sass, **options)

    def alone(self) -> KernelReport:
        """The report as it is where nothing can be recompiled."""
        return inspect(self._unchanged(), sass=self.sass)

    def findings(self, **options: Any) -> tuple[Finding, ...]:
        return self.report(**options).findings

    def only(self, words: str, **options: Any) -> Finding:
        """The one finding whose message holds these words."""
        (finding,) = (f for f in self.findings(**options) if words in f.message)
        return finding

    def _unchanged(self, grid: tuple[int, int, int] | None = None) -> Compiled:
        entries = zip(self.kernel.arg_names, self.signature.split(", "), strict=True)
        return self._compiled(tuple(argument(*entry) for entry in entries), Change(), grid)

    def _again(self, compiled: Compiled) -> Recompile:
        def recompile(change: Change, _: Change | None = None) -> Compiled:
            self.changes.append(change)
            arguments = changed_arguments(compiled.arguments, change)
            try:
                return self._compiled(arguments, change, compiled.grid)
            except Exception as error:
                raise TraceviewError(str(error)) from None

        return recompile

    def _compiled(
        self, arguments: tuple[Argument, ...], change: Change, grid: tuple[int, int, int] | None
    ) -> Compiled:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        numbered = list(enumerate(arguments))
        source = ASTSource(
            self.kernel,
            {a.name: a.type for a in arguments},
            {(at,): a.value for at, a in numbered if a.type == "constexpr"},
            {(at,): [["tt.divisibility", 16]] for at, a in numbered if a.divisible_by_16},
        )
        number = int(limits_of(self.arch).compute_capability.replace(".", ""))
        options: dict[str, Any] = {
            "num_warps": change.num_warps or self.num_warps,
            "num_stages": change.num_stages or self.num_stages,
        }
        if change.max_registers:
            options["maxnreg"] = change.max_registers
        made = triton.compile(source, target=GPUTarget("cuda", number, 32), options=options)
        return Compiled(
            name=self.kernel.__name__,
            arch=self.arch,
            how="declared",
            ptx=made.asm["ptx"],
            cubin=made.asm["cubin"],
            arguments=arguments,
            num_warps=options["num_warps"],
            num_stages=options["num_stages"],
            dynamic_shared_bytes=made.metadata.shared,
            grid=grid,
            stages={n: str(made.asm[n]) for n in ("ttir", "ttgir")} if self.with_ttgir else {},
        )

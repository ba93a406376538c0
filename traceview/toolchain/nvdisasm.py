"""Disassembly of cubins with nvdisasm."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from traceview.errors import TraceFormatError
from traceview.ptx.model import Listing
from traceview.ptx.sass.disassembly import parse
from traceview.toolchain import tools
from traceview.toolchain.processes import ProcessResult

MOST_KEPT = 16


def disassemble(cubin: bytes) -> Listing:
    """Disassemble a cubin to SASS, with source lines if ptxas kept them.

    Raises ToolNotFoundError without nvdisasm, TraceFormatError if it cannot read the cubin.
    """
    return parse(text_of(cubin))


@lru_cache(maxsize=MOST_KEPT)
def text_of(cubin: bytes) -> str:
    """The output of nvdisasm for a cubin, which the line numbers of instructions refer to.

    The latest MOST_KEPT are cached, so that several cubins can be disassembled ahead of use.
    Raises as `disassemble` does.
    """

    def attempt(path: Path) -> ProcessResult:
        return tools.run(path, lambda source, _: ("-c", "-gi", "-gp", source), cubin, ".cubin")

    result = tools.run_first_able(tools.find_newest("nvdisasm"), attempt, "")
    if not result.ok:
        raise TraceFormatError(
            f"nvdisasm cannot read the cubin: {result.evidence}",
            "install a newer CUDA toolkit, or set $TRACEVIEW_NVDISASM to its nvdisasm",
        )
    return result.out

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
    """The SASS of a cubin, with the lines that it was made from where ptxas kept them.

    Raises ToolNotFoundError without nvdisasm, TraceFormatError if it cannot read the cubin.
    """
    return parse(text_of(cubin))


@lru_cache(maxsize=MOST_KEPT)
def text_of(cubin: bytes) -> str:
    """What nvdisasm prints of a cubin's code: the text that the line numbers refer to.

    The latest MOST_KEPT are kept, so that several can be asked for at once, ahead of their use.
    Raises as `disassemble` does.
    """

    def attempt(path: Path) -> ProcessResult:
        return tools.run(path, lambda source, _: ("-c", "-gi", "-gp", source), cubin, ".cubin")

    result = tools.run_first_able(tools.find_newest("nvdisasm"), attempt, "")
    if not result.ok:
        raise TraceFormatError(f"nvdisasm cannot read the cubin: {result.evidence}")
    return result.out

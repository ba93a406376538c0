"""The code of kernels that findings are about, if the recording contains it."""

from __future__ import annotations

from collections.abc import Mapping

from traceview.errors import InputError, TraceFormatError
from traceview.ptx.model import Compiled
from traceview.render.base.code_block import CodeBlock
from traceview.report import Report

_MOST_LINES = 600
"""Instructions of a kernel on the page; `traceview ptx TRACE` shows all."""


def listings(report: Report) -> Mapping[str, CodeBlock]:
    """The annotated PTX of each kernel that a finding names, by the name of the kernel.

    Of several variants, the one with the longest launches is shown. Source files are not read: the
    page shows only what the recording contains.
    """
    trace = report.recording
    named = {f.finding.subject.name for f in report.findings if f.finding.subject.kind == "kernel"}
    if trace is None or not named or "kernel_code" not in trace.tables:
        return {}
    # Imported late, here and below: most recordings have no code, and the import takes a fifth of
    # the time of a page.
    from traceview.facts.code.gathered import gathered_code

    blocks: dict[str, CodeBlock] = {}
    for code in gathered_code(trace).launched:
        name = code.compiled.name
        block = _listing(code.compiled) if name in named and name not in blocks else None
        if block:
            blocks[name] = block
    return blocks


def _listing(compiled: Compiled) -> CodeBlock | None:
    from traceview.render.kernels.code import ptx_block
    from traceview.toolchain.listings import code_of

    try:
        function = code_of(compiled, sass=False, ptxas=False).ptx
    except (TraceFormatError, InputError):
        return None
    return ptx_block(function, _MOST_LINES) if function else None

"""The user's variables that the lines of a kernel assign, as TTGIR names them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from traceview.ptx.model import SourceLine
from traceview.ptx.ttgir.parser import IrModule


def variables_by_line(module: IrModule) -> Mapping[SourceLine, str]:
    """The variable of each line that names exactly one; a `for` carries several."""
    names: dict[SourceLine, set[str]] = defaultdict(set)
    for op in module.operations:
        if op.line and op.name:
            names[op.line].add(op.name)
    return {line: min(each) for line, each in names.items() if len(each) == 1}

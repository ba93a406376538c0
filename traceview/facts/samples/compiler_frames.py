"""The compiler that each sampled Python stack shows at work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.facts.code import compilers
from traceview.tables import Integers
from traceview.trace import Trace, fact


class CompilerFrames(NamedTuple):
    """The outermost compiler frame of each stack, one row per stack.

    `row` is the frame's row in python_frames, `tool` an index into `compilers.TOOLS`; both are −1
    for a stack without such a frame.
    """

    tool: Integers
    row: Integers


@fact
def compiler_frames(trace: Trace) -> CompilerFrames:
    """The compiler frame of each stack; none where the compiler is being imported or shut down."""
    frames = trace.recorded("python_frames")
    files, stack = frames.texts("file"), frames["stack"]
    known = np.array([compilers.tool_of_file(str(name)) for name in files.values] + [-1], np.int64)
    tool = known[files.codes]
    result = np.full(int(stack.max(initial=-1)) + 1, -1, np.int64)
    # Frames come by stack, innermost first, so the last assignment leaves the outermost one.
    rows = np.flatnonzero(tool >= 0)
    result[stack[rows]] = tool[rows]
    outermost = np.full(len(result), -1, np.int64)
    outermost[stack[rows]] = rows
    functions = frames.texts("function")
    idle = functions.isin([name for name in functions.values if compilers.IDLE.match(str(name))])
    result[(outermost >= 0) & idle[outermost]] = -1
    importing = [str(name) for name in files.values if compilers.IMPORTS in str(name)]
    imports = np.flatnonzero(files.isin(importing))
    result[stack[imports[imports > outermost[stack[imports]]]]] = -1
    return CompilerFrames(result, np.where(result >= 0, outermost, -1))

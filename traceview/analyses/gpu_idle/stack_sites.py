"""The place in the user's program of each recorded stack, of Python or native code."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.analyses.gpu_idle.native_lines import native_lines
from traceview.facts.samples import UNNAMED_FUNCTIONS, stack_lines
from traceview.records import record
from traceview.tables import Array, Integers, Mask, Texts
from traceview.trace import Trace, fact

NO_LINE = int(np.iinfo(np.int32).min)


@record
class StackSites:
    """One row per Python stack, then one per native stack, and a last one for no stack at all.

    `file`, `line`, `function` and `source` are absent where the stack has no frame of the program,
    and `line` and `source` in native code, whose `file` is the executable or library. `inner` is
    the library function called there. `number` is equal where file, line and function are, and −1
    without them. `function_number` is equal in all lines of a function; code outside of functions
    has one per line.
    """

    file: Texts
    line: Array
    function: Texts
    inner: Texts
    source: Texts
    number: Integers
    function_number: Integers
    native: Mask

    def __len__(self) -> int:
        return len(self.line)


@fact
def stack_sites(trace: Trace) -> StackSites:
    frames, python = trace.recorded("python_frames"), stack_lines(trace)
    native = native_lines(trace)
    row = python.frame
    file = _joined(_picked(frames.texts("file"), row), native.module)
    function = _joined(_picked(frames.texts("function"), row), native.function)
    absent = np.full(len(native.stack) + 1, NO_LINE, np.int32)
    line = np.concatenate([np.append(frames["line"], np.int32(NO_LINE))[row], absent])
    number = groups.group(file.codes, line, function.codes).ids
    alone = np.where(function.isin(UNNAMED_FUNCTIONS), line, NO_LINE)
    within = groups.group(file.codes, function.codes, alone).ids
    return StackSites(
        file=file,
        line=line,
        function=function,
        inner=_joined(python.inner, native.inner),
        source=_joined(_picked(frames.texts("source"), row), native.stack),
        number=np.where(file.codes >= 0, number, -1),
        function_number=np.where(file.codes >= 0, within, -1),
        native=np.arange(len(line)) >= len(row),
    )


def native_rows(trace: Trace, stack: Integers) -> Integers:
    """The rows in StackSites of stacks of native_frames; the last row for unknown stacks."""
    known, first = native_lines(trace).stack, len(stack_lines(trace).frame)
    if not len(known):
        return np.full(len(stack), first, np.int64)
    place = np.searchsorted(known, stack).clip(0, len(known) - 1)
    return first + np.where(known[place] == stack, place, len(known))


def _picked(texts: Texts, rows: Integers) -> Texts:
    """The texts of some rows, absent for row −1."""
    return Texts(np.append(texts.codes, np.int32(-1))[rows], texts.values)


def _joined(python: Texts, native: Texts | Integers) -> Texts:
    """Texts of Python stacks, of native stacks (absent if given as integers) and of no stack."""
    count = len(python.values)
    if not isinstance(native, Texts):
        codes = np.full(len(native), -1, np.int32)
        values = list(python.values)
    else:
        codes = np.where(native.codes >= 0, native.codes + count, -1).astype(np.int32)
        values = [*python.values, *native.values]
    every = np.concatenate([python.codes, codes, np.array([-1], np.int32)])
    return Texts(every, np.array([*values, None], object)[:-1]).map([str(text) for text in values])

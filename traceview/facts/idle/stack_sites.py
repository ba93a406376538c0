"""The place in the user's program of each recorded stack, of Python or native code.

Also: samples of JAX programs that had waited for a result when the GPU ran dry. XLA launches on
threads of its own, and a wait for its results makes no CUDA call, so that the samples alone show
it: the last one before the gap is in the wait.
"""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.facts.idle.native_lines import native_lines
from traceview.facts.samples import UNNAMED_FUNCTIONS, stack_lines, stacks_at
from traceview.records import record
from traceview.tables import Array, Integers, Mask, Texts
from traceview.trace import Trace, fact
from traceview.vocabulary.activities import CPU, RESULT_WAIT

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


_CALL = re.compile(r"\bblock_until_ready\s*\(")
_JAX = re.compile(r"(jax|jaxlib|flax|optax|equinox)\.")
_PERIODS = 3
"""The last sample before a gap shows how it began if it is at most this many periods older."""


@fact
def result_waits(trace: Trace) -> Mask:
    """True for the Python stacks in a wait for a result, by its frames or the text of the line."""
    result: Mask = (stack_lines(trace).doing == RESULT_WAIT) | stacks_at(trace, _CALL)
    return result


@fact
def calls_jax(trace: Trace) -> Mask:
    """True for the stacks (rows in stack_sites) at lines that were seen to call JAX.

    A call of a compiled function is C++ without a Python frame; the call that compiles it has some.
    """
    sites = stack_sites(trace)
    inside = sites.inner.isin([str(name) for name in sites.inner.values if _JAX.match(str(name))])
    result: Mask = np.isin(sites.number, sites.number[inside & (sites.number >= 0)])
    return result


def stacks_before(times: Integers, stacks: Integers, start: Integers, period_ns: int) -> Integers:
    """The stack of a thread's last sample before each gap; −1 without a sample shortly before.

    `times` are ascending.
    """
    last = np.searchsorted(times, start, side="right") - 1
    near = (last >= 0) & (times[last] >= start - _PERIODS * period_ns)
    return np.where(near, stacks[last], -1)


def after_waits(
    trace: Trace, doing: Array, stack: Integers, before: Integers
) -> tuple[Array, Integers]:
    """Activity and stack of samples in gaps; after a wait for a result they become the wait's.

    `before` is the stack before the gap. Samples at lines that do not call JAX stay unchanged.
    """
    waited = (before >= 0) & result_waits(trace)[before] & (doing == CPU) & calls_jax(trace)[stack]
    return np.where(waited, RESULT_WAIT, doing).astype(np.uint8), np.where(waited, before, stack)

"""The place in the user's program of each recorded stack, of Python or native code, and idle
time at native ones.

Also: samples of JAX programs that had waited for a result when the GPU ran dry. XLA launches on
threads of its own, and a wait for its results makes no CUDA call, so that the samples alone show
it: the last one before the gap is in the wait.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, Texts
from traceview.base.vocabulary.activities import CPU, MESSAGE, OFF_CPU, PAGES, RESULT_WAIT
from traceview.kernels.ptx.producers import plain_name
from traceview.traces.facts.copies import uses_managed_memory
from traceview.traces.facts.launches import waits
from traceview.traces.facts.operations import api_calls
from traceview.traces.facts.pacing import off_cpu
from traceview.traces.facts.ranges.origins import range_waits
from traceview.traces.facts.samples import (
    LEAST_FRACTION,
    LEAST_SAMPLES,
    UNNAMED_FUNCTIONS,
    stack_lines,
    stacks_at,
)
from traceview.traces.trace import Trace, fact

_BASE = (
    r"^\[|(^|/)lib(cu|nv|Tools|nccl|acc|i?omp|pg[a-z]|mpi|open-|uc[mpst]\b|fabric)\w*[-.\w]*\.so"
    r"|(^|/)mca_\w+\.so|(^|/)lib(c|m|stdc\+\+|gcc_s|gomp|pthread|dl|rt)\.so|/ld-linux"
)
_INTERPRETER = r"(^|/)(lib)?(python|ipython|pypy|julia|java|node)[\d.]*[td]?(\.so[\d.]*)?$"
_SYSTEM = rf"{_BASE}|{_INTERPRETER}|^/(usr|lib\w*|opt|nix|snap)/|(site|dist)-packages/"
_LAUNCHES = (
    r"/lib(torch|c10|tensorflow)\w*\.|/(torch|jax|jaxlib|cupy|cupyx|triton|tensorflow|numba)/"
)
"""Libraries that launch GPU work: time in them is part of the cost of launches."""
# Code that compilers, the CUDA runtime and template libraries put into the program's executable.
_RUNTIME = (
    r"_start$|_init$|libcudart_static|cuda[A-Z]|cu[A-Z]\w*$|__cuda|__device_stub|std::|__gnu_cxx::"
    r"|thrust::|cub::|cuda::|nv::|cublas|cudnn|cufft|cusparse|nccl|operator (new|delete)|__sti__"
    r"|__pgi_|__tgt_|__kmpc_|GOACC_|GOMP_|P?MPI_"
)
_OPENING, _CLOSING = "<(", ">)"
_ANONYMOUS = r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::"
_VERSION = r"\.(so|cpython-|abi3\b).*"
_LONGEST_NAME = 20_000


def function_name(symbol: str) -> str:
    """The qualified name of a demangled function: `a::sort` for `void a::sort<int>(int*) [clone]`.

    A mangled symbol gives its unqualified name.
    """
    if symbol.startswith("_Z"):
        return plain_name(symbol)
    text = re.sub(_ANONYMOUS, "", symbol[:_LONGEST_NAME])
    kept, depth = [], 0
    for letter in text.replace("operator()", "operator call").replace("->", "  "):
        depth += letter in _OPENING
        if not depth:
            kept.append(letter)
        elif letter == "(" and depth == 1:
            break
        depth -= letter in _CLOSING
    words = "".join(kept).replace("operator call", "operator()").split(" [clone")[0].split()
    return words[-1] if words else symbol


@record
class NativeLines:
    """One row per native stack.

    `stack` are the numbers of the stacks, ascending. `module` and `function` (demangled) are of the
    innermost frame in the user's program. Without one they are of the library function that an
    interpreter called, unless its library launches GPU work. `inner` is the function called by that
    frame; without such a frame the one that was called, or the innermost known one.
    """

    stack: Integers
    module: Texts
    function: Texts
    inner: Texts


@fact
def native_lines(trace: Trace) -> NativeLines:
    frames = trace.recorded("native_frames")
    return find_functions(frames["stack"], frames.texts("module"), frames.texts("function"))


def find_functions(stack: Integers, module: Texts, function: Texts) -> NativeLines:
    """The functions of the distinct stacks, whose frames come in order of stack and depth."""
    number, place = np.unique(stack, return_inverse=True)
    names = [function_name(str(each)) for each in function.values]
    runtime = _matching(function, [bool(re.match(_RUNTIME, name)) for name in names])
    named = function.codes >= 0

    def innermost(chosen: Mask) -> Integers:
        rows = np.flatnonzero(chosen)
        result = np.full(len(number), -1, np.int64)
        result[place[rows[::-1]]] = rows[::-1]
        return result

    def outermost(chosen: Mask) -> Integers:
        rows = np.flatnonzero(chosen)
        result = np.full(len(number), -1, np.int64)
        # The outermost frame is assigned last.
        result[place[rows]] = rows
        return result

    def of(pattern: str) -> Mask:
        return _matching(module, [bool(re.search(pattern, str(name))) for name in module.values])

    user = innermost(~of(_SYSTEM) & named & ~runtime & (module.codes >= 0))
    rows = np.arange(len(place))
    interpreter = innermost(of(_INTERPRETER))
    library = outermost((rows < interpreter[place]) & named & ~runtime & ~of(_BASE))
    launches = np.append(of(_LAUNCHES), False)[library]
    user = np.where((user < 0) & ~launches, library, user)
    below = rows < np.where(user >= 0, user, -1)[place]
    static = function.isin([str(text) for text in function.values if "cudart_static" in str(text)])
    called = outermost(below & named & ~static)
    leaf, first = innermost(np.ones(len(place), bool)), innermost(named & ~static)
    without = np.where(library >= 0, library, np.where(first >= 0, first, leaf))
    inner = np.where(
        user >= 0, np.where(user == leaf, -1, np.where(called >= 0, called, leaf)), without
    )
    return NativeLines(
        number,
        _picked(module, user),
        _picked(function, user),
        _inner_names(module, function, inner, user),
    )


def _matching(texts: Texts, hits: list[bool]) -> Mask:
    """True for the rows whose text is a hit."""
    return np.append(np.array(hits, bool), False)[texts.codes]


def _picked(texts: Texts, rows: Integers) -> Texts:
    """The texts of some rows, absent for row −1."""
    return Texts(np.append(texts.codes, np.int32(-1))[rows], texts.values)


def _inner_names(module: Texts, function: Texts, rows: Integers, user: Integers) -> Texts:
    """The function of each row, behind its library if the stack has no frame of the program.

    `libcuda` alone stands for a library without symbols.
    """
    functions, libraries = _picked(function, rows), _picked(module, rows)
    each = groups.group(functions.codes, libraries.codes, user >= 0)
    names = []
    for row in each.first.tolist():
        library = re.sub(_VERSION, "", str(libraries[row] or "").rpartition("/")[2])
        name = None if functions[row] is None else function_name(str(functions[row]))
        parts = (library if user[row] < 0 or name is None else None, name)
        names.append(": ".join(part for part in parts if part) or None)
    texts = Texts.of(names)
    return Texts(texts.codes[each.ids], texts.values)


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
    # The instances of a template are one function.
    plain = native.function.map([function_name(str(name)) for name in native.function.values])
    named = _joined(_picked(frames.texts("function"), row), plain)
    number = groups.group(file.codes, line, named.codes).ids
    alone = np.where(named.isin(UNNAMED_FUNCTIONS), line, NO_LINE)
    within = groups.group(file.codes, named.codes, alone).ids
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
    return (stack_lines(trace).doing == RESULT_WAIT) | stacks_at(trace, _CALL)


@fact
def calls_jax(trace: Trace) -> Mask:
    """True for the stacks (rows in stack_sites) at lines that were seen to call JAX.

    A call of a compiled function is C++ without a Python frame; the call that compiles it has some.
    """
    sites = stack_sites(trace)
    inside = sites.inner.isin([str(name) for name in sites.inner.values if _JAX.match(str(name))])
    return np.isin(sites.number, sites.number[inside & (sites.number >= 0)])


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


# Idle time by what a launching thread without Python samples did: run, or wait off the CPU.
#
# nsys samples a thread only while it runs. So a gap is cut at the recorded scheduling events: the
# time off the CPU is known exactly, by the call of the operating system that the thread was in,
# and the rest is divided among the samples.


class OffCpu(NamedTuple):
    """Waits of a thread off the CPU, disjoint and in order.

    `site` is the row in StackSites, `doing` an index into ACTIVITIES.
    """

    start: Integers
    end: Integers
    site: Integers
    doing: Array


class Pieces(NamedTuple):
    """Parts of idle gaps. `gap` is the gap's row, `wait` the row of the wait, −1 on the CPU."""

    gap: Integers
    start: Integers
    end: Integers
    wait: Integers


def cut_gaps(idle: Intervals, waits: OffCpu) -> Pieces:
    """Cut disjoint gaps, in order, at the edges of the waits."""
    cuts = groups.different(np.concatenate([*idle, waits.start, waits.end]))
    kept = np.flatnonzero(intervals.inside(idle, cuts))
    start, end = cuts[kept], cuts[kept + 1]
    gap = np.searchsorted(idle.start, start, side="right") - 1
    wait = np.searchsorted(waits.start, start, side="right") - 1
    waiting = intervals.inside(Intervals(waits.start, waits.end), start)
    return Pieces(gap, start, end, np.where(waiting, wait, -1))


LONGEST_FAULT_NS = 1_000_000
"""A thread that touches pages of unified memory is off the CPU for 15 to 25 µs (a public program
that writes and reads one number per pass), outside of calls."""


def thread_waits(trace: Trace, thread: int, kinds: Array) -> OffCpu:
    """The waits of a thread. `kinds` are activities (ACTIVITIES) by code of the names in os_calls.

    Without scheduling events, these are its blocking calls. In a CUDA call a thread waits for the
    GPU or the driver: that time counts as the call, on the CPU.
    """
    # Rows of os_calls of a thread, disjoint and in order.
    calls = trace.recorded("os_calls")
    rows = np.flatnonzero((calls["thread"] == thread) & (calls.duration_ns > 0))
    rows = rows[np.lexsort((-calls["end_ns"][rows], calls["start_ns"][rows]))]
    reach = np.maximum.accumulate(calls["end_ns"][rows])
    outer = np.ones(len(rows), bool)
    outer[1:] = calls["start_ns"][rows][1:] >= reach[:-1]
    calls, rows = trace.recorded("os_calls"), rows[outer]
    start, end = calls["start_ns"][rows], calls["end_ns"][rows]
    kind = kinds[calls.texts("name").codes[rows]]
    cuda = api_calls(trace)
    own = cuda.thread == thread
    in_cuda = intervals.covered(cuda, own)
    away = off_cpu(trace, thread)
    if "thread_runs" not in trace.tables:
        away = intervals.union(start[kind != CPU], end[kind != CPU])
    told = range_waits(trace).get(thread, {})
    away = intervals.union(*map(np.concatenate, zip(away, *told.values(), strict=True)))
    edges = chain.from_iterable(told.values())
    cuts = groups.different(np.concatenate([*away, start, end, *in_cuda, *edges]))
    kept = np.flatnonzero(intervals.inside(away, cuts))
    begin, until = cuts[kept], cuts[kept + 1]
    call = np.searchsorted(start, begin, side="right") - 1
    known = intervals.inside(Intervals(start, end), begin)
    stack = np.append(calls["stack"][rows], np.iinfo(np.int64).min)[np.where(known, call, -1)]
    faults = uses_managed_memory(trace) and "os_calls" in trace.tables
    outside = np.where(faults & (until - begin < LONGEST_FAULT_NS), PAGES, OFF_CPU)
    doing = np.where(known, np.append(kind, OFF_CPU)[np.where(known, call, -1)], outside)
    doing = np.where(doing == CPU, OFF_CPU, doing)
    for its, inside in told.items():
        doing = np.where(intervals.inside(inside, begin), its, doing)
    # MPI polls on the CPU, and calls CUDA itself.
    sends = told.get(MESSAGE, intervals.EMPTY)
    calls_cuda = intervals.inside(in_cuda, begin) & ~intervals.inside(sends, begin)
    doing = np.where(calls_cuda, CPU, doing)
    return OffCpu(begin, until, native_rows(trace, stack), doing.astype(np.uint8))


class NativeSamples(NamedTuple):
    """Native samples with a stack, in order of time: `site` is the row in StackSites."""

    time_ns: Integers
    thread: Array
    site: Integers

    def of_thread(self, thread: int) -> NativeSamples:
        own = self.thread == thread
        return NativeSamples(*(column[own] for column in self))


def unwound_samples(trace: Trace) -> NativeSamples:
    samples = trace.recorded("native_samples")
    site = native_rows(trace, samples["stack"])
    known = site < len(stack_sites(trace)) - 1
    return NativeSamples(samples["time_ns"][known], samples["thread"][known], site[known])


def helping_samples(trace: Trace, thread: int, windows: Intervals) -> NativeSamples:
    """Samples, at the program's own work, of the thread that works most while another waits.

    It is of the same process, and calls no CUDA. The other waits for something other than CUDA.
    """
    samples, process, calls = unwound_samples(trace), trace.threads["process"], api_calls(trace)
    os_calls = trace.recorded("os_calls")
    waits = intervals.covered(os_calls, os_calls["thread"] == thread)
    sides = zip(waits, off_cpu(trace, thread), strict=True)
    waits = intervals.union(*(np.concatenate(side) for side in sides))
    waits = intervals.without(waits, intervals.covered(calls, calls.thread == thread))
    helps = process == process[thread]
    helps[calls.thread] = False
    helps[thread] = False
    time = samples.time_ns
    own = helps[samples.thread] & (stack_sites(trace).number[samples.site] >= 0)
    own &= intervals.inside(waits, time) & intervals.inside(windows, time)
    most = np.bincount(samples.thread[own], minlength=1).argmax()
    return NativeSamples(*(column[own & (samples.thread == most)] for column in samples))


class SampledFunction(NamedTuple):
    """A function of a program, and how many of some samples are in it or what it calls."""

    function: str
    module: str
    samples: int


def innermost_function(trace: Trace, site: Integers, least: float) -> SampledFunction | None:
    """The function in which, with its callees, this part of the samples of native code is.

    Of several the innermost one. Only functions in the files of the samples' own ones count. None
    without any.
    """
    frames, sites = trace.recorded("native_frames"), stack_sites(trace)
    names, modules = frames.texts("function"), frames.texts("module")
    row = native_rows(trace, frames["stack"])
    own = np.array([bool(re.match(_RUNTIME, function_name(str(each)))) for each in names.values])
    program = modules.isin({str(each) for each in sites.file.take(groups.different(site)).decode()})
    kept = program & (names.codes >= 0) & ~_matching(names, own.tolist())
    rows = np.flatnonzero(kept & groups.isin(row, site))
    if not len(rows):
        return None
    # The instances of a template are one function, in a stack once.
    plain = names.map([function_name(str(each)) for each in names.values]).codes
    function = groups.group(plain[rows])
    once = groups.group(row[rows], function.ids).first
    of_site = np.bincount(site, minlength=len(sites))
    count = np.bincount(function.ids[once], of_site[row[rows[once]]], function.size)
    fits = count >= least * len(site)
    if not fits.any():
        return None
    # Frames come by stack, innermost first.
    most = int(np.lexsort((function.first, count, ~fits))[0])
    first = int(rows[function.first[most]])
    return SampledFunction(str(names[first]), str(modules[first]), int(count[most]))


def function_of_waits(trace: Trace, rows: Integers) -> SampledFunction | None:
    """The program's function that makes most of some waits, by their call chains or samples.

    None in an interpreter, whose lines tell more, and where no function makes most of them.
    """
    every, (chain, chained) = waits(trace), _chained_functions(trace)
    own = trace.recorded("api_calls")["callchain_id"][every.call[rows]]
    at = np.searchsorted(chain, own).clip(0, max(len(chain) - 1, 0))
    found, known = chained, at[chain[at] == own] if len(chain) else at[:0]
    if 2 * len(known) < len(rows):
        samples, within = unwound_samples(trace), np.zeros(0, np.int64)
        for thread, of_thread in groups.rows_of(every.thread[rows]).items():
            seen = samples.of_thread(thread)
            during = intervals.covered(every, rows[of_thread])
            within = np.append(within, seen.site[intervals.inside(during, seen.time_ns)])
        found = native_lines(trace)
        known = within - len(stack_lines(trace).frame)
        if len(known) < LEAST_SAMPLES:
            return None
    functions = found.function.map([function_name(str(each)) for each in found.function.values])
    each = groups.group(functions.codes[known], found.module.codes[known])
    count = groups.count(each)
    if not len(count) or int(count.max()) < LEAST_FRACTION * len(known):
        return None
    row = int(known[each.first[np.argmax(count)]])
    module = str(found.module[row])
    if functions[row] is None or re.search(_SYSTEM, module):
        return None
    return SampledFunction(str(functions[row]), module, int(count.max()))


@fact
def _chained_functions(trace: Trace) -> tuple[Integers, NativeLines]:
    """The ids of the call chains, ascending, and their functions."""
    frames = trace.recorded("callchains")
    frames = frames.take(np.lexsort((frames["depth"], frames["callchain_id"])))
    names = frames.texts("symbol")
    known = Texts(np.where(names.matching(_ADDRESS.match), -1, names.codes), names.values)
    functions = find_functions(frames["callchain_id"], frames.texts("module"), known)
    return functions.stack, functions


_ADDRESS = re.compile("0x")

"""Waits of the CPU for the GPU: what each leaves idle, and where the program makes it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import ColumnRecord, Table, Texts
from traceview.base.tables.arrays import NULL, Array, Integers, Mask, constant, object_array
from traceview.base.vocabulary.causes import ALLOCATION, COPY_WAIT, JIT_COMPILE, MODULE_LOAD
from traceview.traces.facts.copies import uploads
from traceview.traces.facts.idle.gaps import Gaps, busy, every_gap, gaps, steady_span_ns
from traceview.traces.facts.launches import Waits, waits
from traceview.traces.facts.operations import CallKind, Operations, operations
from traceview.traces.facts.ranges.selection import selected_calls, selected_operations
from traceview.traces.facts.samples import SampledLine, names_functions, place_of
from traceview.traces.trace import Trace, fact

# The line of the program behind each wait, and what it called there, by its C++ frames.
#
# Sources of the names of calls: torch/csrc/autograd/python_variable_methods.cpp (template), and
# its neighbours for indexing, streams and events, and torch/csrc/cuda/Module.cpp bind to Python
# (PyTorch 2.6 to 2.13, read off the symbols of libtorch_python.so and off call chains recorded on
# an H200 with 2.11); the kernels of aten/src/ATen/native/cuda that copy a size or a value to the
# host; CuPy's cupy_backends/cuda/api/runtime.pyx, whose functions keep their names in the C that
# Cython writes.

_METHODS = (
    "item tolist numpy cpu cuda to type copy_ nonzero argwhere masked_select bincount histc equal "
    "allclose is_nonzero repeat_interleave pin_memory to_sparse new_tensor double float half"
)
# Python calls, by the C++ function that is bound to them.
BOUND = {
    "bool_scalar": "Tensor.__bool__",
    "integral_scalar": "Tensor.__int__",
    "index_scalar": "Tensor.__index__",
    "float_scalar": "Tensor.__float__",
    "complex_scalar": "Tensor.__complex__",
    "getitem": "Tensor.__getitem__",
    "setitem": "Tensor.__setitem__",
    **{name: f"Tensor.{name}" for name in _METHODS.split()},
    "_unique2": "torch.unique",
    "_unique": "torch.unique",
    "unique_dim": "torch.unique",
    "unique_consecutive": "torch.unique_consecutive",
    "tensor": "torch.tensor",
    "as_tensor": "torch.as_tensor",
    "one_hot": "torch.nn.functional.one_hot",
}
_VARIABLE = re.compile(r"(?:^|[ :])THPVariable_(\w+?)(?:\[abi:\w+\])?(?:\(|<|$)")
_NAMED = (
    (r"\bTHCPModule_cudaSynchronize\b", "torch.cuda.synchronize"),
    (r"\bTHCPModule_emptyCache\b|\bTHCPModule_empty_cache\b", "torch.cuda.empty_cache"),
    (r"\bTHCPStream_synchronize\b|\bTHPStream_synchronize\b", "torch.cuda.Stream.synchronize"),
    (r"\bTHCPEvent_synchronize\b|\bTHPEvent_synchronize\b", "torch.cuda.Event.synchronize"),
    (r"\bTHPStorage_copy_", "UntypedStorage.copy_"),
)

# Functions inside torch and CuPy that wait, for stacks without a Python call (autograd's thread).
_INSIDE = (
    (r"\bat::native::_local_scalar_dense_cuda\b", "Tensor.item"),
    (r"\bat::native::is_nonzero\b", "Tensor.is_nonzero"),
    (r"\bat::native::nonzero(_out)?_cuda\b", "Tensor.nonzero"),
    (r"\bat::native::masked_select(_out)?_cuda\b", "Tensor.masked_select"),
    (r"\bat::native::_?unique\w*_cuda\b", "torch.unique"),
    (r"\bat::native::repeat_interleave\w*\b", "Tensor.repeat_interleave"),
    (r"\bat::native::_?bincount_cuda\b", "Tensor.bincount"),
    (r"\bat::native::cuda_equal\b", "Tensor.equal"),
    (r"\bat::native::(copy_kernel_cuda|_to_copy|copy_)\b", "Tensor.to or copy_"),
    (r"\bcupy_backends\b.*\bstreamSynchronize\b", "cupy.cuda.Stream.synchronize"),
    (r"\bcupy_backends\b.*\beventSynchronize\b", "cupy.cuda.Event.synchronize"),
    (r"\bcupy_backends\b.*\bdeviceSynchronize\b", "cupy.cuda.Device.synchronize"),
    (r"\bc10::cuda::CUDACachingAllocator::emptyCache\b", "torch.cuda.empty_cache"),
)
_OPERATOR = re.compile(r"\bat::_ops::(\w+)::")
_FUNCTION = re.compile(r"(?:^|\s)(at::(?:\w+::)*\w+)\(")


def python_call(symbol: str) -> str | None:
    """The Python call bound to this frame; None for any other frame."""
    method = _VARIABLE.search(symbol)
    if method:
        return BOUND.get(method[1], f"aten::{method[1]}")
    return next((hint for pattern, hint in _NAMED if re.search(pattern, symbol)), None)


def inner_call(symbol: str) -> str | None:
    """The call behind a frame inside torch or CuPy that is known to wait; else None."""
    return next((hint for pattern, hint in _INSIDE if re.search(pattern, symbol)), None)


def operator(symbol: str) -> str | None:
    """The operator or function of torch's library in a frame, such as `aten::addmm`."""
    match = _OPERATOR.search(symbol)
    if match:
        return f"aten::{match[1]}"
    function = _FUNCTION.search(symbol)
    return function[1] if function else None


@fact
def chain_hints(trace: Trace) -> tuple[Integers, Texts]:
    """Ids of the call chains of waits, ascending, and the hint of each, absent if unknown.

    The Python call nearest to the CUDA call counts. Without one, as on autograd's thread, it is
    the nearest frame that is known to wait, else the outermost operator of torch.
    """
    frames = trace.recorded("callchains")
    wanted = trace.recorded("api_calls")["callchain_id"][waits(trace).call]
    frames = frames.take(groups.isin(frames["callchain_id"], wanted))
    ids, chain = np.unique(frames["callchain_id"], return_inverse=True)
    depth, symbols = frames["depth"].astype(np.int64), frames.texts("symbol")
    hints = np.full(len(ids), None, object)
    for rule, nearest in ((python_call, True), (inner_call, True), (operator, False)):
        open_ = np.array([hint is None for hint in hints], bool)
        # Give each open chain the hint of its frame with the least depth for which a rule has one.
        by_symbol = object_array([rule(str(symbol)) for symbol in symbols.values])
        known = np.array([hint is not None for hint in by_symbol] or [False], bool)
        rows = np.flatnonzero(open_[chain] & known[np.maximum(symbols.codes, 0)])
        rows = rows[np.lexsort(((depth if nearest else -depth)[rows], chain[rows]))]
        of, first = np.unique(chain[rows], return_index=True)
        hints[of] = by_symbol[symbols.codes[rows[first]]] if len(of) else None
    return ids, Texts.of(hints)


@record
class CallSites(ColumnRecord):
    """The call site of each wait, one row per wait; each column absent where it is not known.

    `site` is `train.py:31 in step`, or `step (train.py:9)` where the line is that of the function,
    `file`, `line` (0 if absent) and `function` its parts, `source` the text of that line, `hint`
    the call of the program, such as `Tensor.item`.
    """

    site: Texts
    file: Texts
    line: Integers
    function: Texts
    source: Texts
    hint: Texts

    def line_of(self, wait: int) -> SampledLine | None:
        """The line that was marked at a wait."""
        site, file = self.site[wait], self.file[wait]
        if site is None or file is None:
            return None
        line, function = int(self.line[wait]), str(self.function[wait])
        begins = not site.endswith(f" in {function}")
        return SampledLine(file, line, function, 0, self.source[wait] or None, begins=begins)


@fact
def wait_sites(trace: Trace) -> CallSites:
    """Call sites from the program's marks where there are some; hints else from call chains."""
    marks = trace.recorded("call_sites")
    every = waits(trace)
    row = open_marks(marks, every.thread, every.start_ns)
    line = marks["line"][np.maximum(row, 0)] if len(marks) else np.zeros(len(row), np.int64)
    return CallSites(
        site=_site_texts(marks, row, begins=names_functions(trace)),
        file=_marked(marks.texts("file"), row),
        line=np.where((row >= 0) & (line != NULL), line, 0).astype(np.int64),
        function=_marked(marks.texts("function"), row),
        source=_marked(marks.texts("source"), row),
        hint=_hints(_marked(marks.texts("hint"), row), _hints_of_chains(trace, every.call)),
    )


def open_marks(marks: Table, thread: Array, time: Integers) -> Integers:
    """Row of the mark that is open on a thread at a time, or −1. Marks of a thread never nest."""
    result = np.full(len(time), -1, np.int64)
    start, end = marks["start_ns"], marks["end_ns"]
    for number in groups.different(marks["thread"]):
        own = np.flatnonzero(marks["thread"] == number)
        of_thread = np.flatnonzero(thread == number)
        last = np.searchsorted(start[own], time[of_thread], side="right") - 1
        row = own[np.maximum(last, 0)]
        open_: Mask = (last >= 0) & ((end[row] == NULL) | (time[of_thread] < end[row]))
        result[of_thread] = np.where(open_, row, -1)
    return result


def _marked(texts: Texts, row: Integers) -> Texts:
    """The text of each row, absent where the row is −1."""
    codes = np.append(texts.codes, np.int32(-1))
    return Texts(codes[row], texts.values)


def _site_texts(marks: Table, row: Integers, *, begins: bool) -> Texts:
    """The site of each row."""
    file, line, function = marks.texts("file"), marks["line"], marks.texts("function")
    sites: list[str | None] = [None] * (len(marks) + 1)
    for number in groups.different(row[row >= 0]).tolist():
        if file[number] is not None:
            where = str(file[number]), int(line[number]), str(function[number])
            place = place_of(*where, begins=begins)
            sites[number] = place if begins else f"{place} in {function[number]}"
    return _marked(Texts.of(sites), row)


def _hints(marked: Texts, chained: Texts) -> Texts:
    """The hint of the mark, else that of the call chain; an empty one counts as absent."""
    every = Texts.of([*(text or None for text in marked.values), *chained.values])
    places = np.append(every.codes, np.int32(-1))
    of_mark = places[marked.codes]
    shifted = np.where(chained.codes < 0, -1, chained.codes + len(marked.values))
    return Texts(np.where(of_mark >= 0, of_mark, places[shifted]), every.values)


def _hints_of_chains(trace: Trace, call: Integers) -> Texts:
    ids, hints = chain_hints(trace)
    chain = trace.recorded("api_calls")["callchain_id"][call]
    if not len(ids):
        return Texts(constant(-1, len(chain), np.int32), hints.values)
    place = np.minimum(np.searchsorted(ids, chain), len(ids) - 1)
    return _marked(hints, np.where(ids[place] == chain, place, -1))


BLOCKING = (
    CallKind.SYNCHRONIZE,
    CallKind.COPY,
    CallKind.COPY_ASYNC,
    CallKind.ALLOCATE,
    CallKind.LOAD,
)
IN_A_CALL = (ALLOCATION, MODULE_LOAD, JIT_COMPILE, COPY_WAIT)
"""Causes of which the call that the CPU was in is to blame, if it was in one."""
_LONG_AGO = int(np.iinfo(np.int64).min)


@record
class Stalls:
    """Cost of waits; `outer` and `benign_ns` have a row per wait, the others per part of a gap.

    Parts of gaps are the rows of every_gap.
    `outer` is the row of the outermost blocking call around a wait, or the wait's own row: a driver
    call inside a runtime call is not a second wait. `benign_ns` is the part of the wait in which
    the awaited device worked. `wait` is the outermost wait that caused the part, −1 where none did.
    A part has one cause, so the idle time of all waits is that of these parts.
    """

    outer: Integers
    benign_ns: Integers
    wait: Integers
    gap_idle_ns: Integers

    def idle_ns(self, chosen: Mask) -> Integers:
        """GPU idle time that each wait caused in the chosen parts of gaps."""
        caused = chosen & (self.wait >= 0)
        result = np.zeros(len(self.outer), np.int64)
        np.add.at(result, self.wait[caused], self.gap_idle_ns[caused])
        return result


@fact
def stalls(trace: Trace) -> Stalls:
    every, gaps, ops = waits(trace), every_gap(trace), operations(trace)
    outer, wait = outermost_waits(every), causing_waits(every, gaps)
    if len(every):
        wait = np.where(wait >= 0, outer[np.maximum(wait, 0)], -1)
    return Stalls(outer, benign_time(every, busy(trace), ops), wait, gaps.idle_ns)


@fact
def caused_by_selected_waits(trace: Trace) -> Mask:
    """True for the parts, of every_gap, that a selected wait caused, whatever work ended them.

    The next step pays for a synchronization at the end of a step.
    """
    wait = stalls(trace).wait
    result = np.zeros(len(wait), bool)
    caused = np.flatnonzero(wait >= 0)
    result[caused] = selected_calls(trace)[waits(trace).call[wait[caused]]]
    return result


def stall_span_ns(trace: Trace) -> int:
    """`steady_span_ns` plus the idle time that selected waits caused before work not selected."""
    every, own = every_gap(trace), gaps(trace)
    if every is own:
        return steady_span_ns(trace)
    more = caused_by_selected_waits(trace) & ~selected_operations(trace)[every.after]
    return steady_span_ns(trace) + int(every.idle_ns[more & ~every.one_time].sum())


def outermost_waits(waits: Waits) -> Integers:
    """Row of the outermost blocking call around each wait. Calls of one thread nest."""
    result = np.arange(len(waits))
    blocks = np.isin(waits.does, BLOCKING)
    for thread in groups.different(waits.thread):
        own = np.flatnonzero(waits.thread == thread)
        rows = own[np.lexsort((~blocks[own], -waits.end_ns[own], waits.start_ns[own]))]
        end = np.where(blocks[rows], waits.end_ns[rows], _LONG_AGO)
        before = np.concatenate(([_LONG_AGO], np.maximum.accumulate(end)[:-1]))
        inner = (waits.end_ns[rows] <= before) & (waits.start_ns[rows] < before)
        opened = np.where(blocks[rows] & ~inner, np.arange(len(rows)), -1)
        around = rows[np.maximum(np.maximum.accumulate(opened), 0)]
        result[rows] = np.where(inner, around, rows)
    return result


def causing_waits(waits: Waits, gaps: Gaps) -> Integers:
    """The wait that caused each part of a gap, −1 where none did.

    Of a sync-drain it is its synchronization. Of allocations, of code that is loaded, and of
    pageable bytes that are moved it is the call that the part was spent in.
    """
    result = gaps.wait.copy()
    rows = np.flatnonzero(np.isin(gaps.cause, IN_A_CALL) & (gaps.within >= 0))
    if len(rows) and len(waits):
        by_call = np.argsort(waits.call)
        calls = waits.call[by_call]
        at = np.minimum(np.searchsorted(calls, gaps.within[rows]), len(calls) - 1)
        result[rows] = np.where(calls[at] == gaps.within[rows], by_call[at], -1)
    return result


def benign_time(waits: Waits, busy: Mapping[int, Intervals], ops: Operations) -> Integers:
    """Time of each wait in which the device that it waits for worked, in ns.

    Where the trace does not name the device, any device that its process uses counts.
    """
    result = np.zeros(len(waits), np.int64)
    for device in groups.different(waits.device).tolist():
        for process in groups.different(waits.process[waits.device == device]).tolist():
            rows = (waits.device == device) & (waits.process == process)
            covered = busy.get(device)
            if covered is None:
                own = ops.process == process
                covered = intervals.covered(ops, own)
            result[rows] = intervals.overlap(covered, waits.start_ns[rows], waits.end_ns[rows])
    return result


def after_uploads(trace: Trace) -> Mask:
    """True for the gaps, of every_gap, in which the GPU ran dry after a copy from the host."""
    return uploads(trace)[every_gap(trace).before]


@fact
def pageable_uploads(trace: Trace) -> Mask:
    """True for the operations that copy pageable memory to a GPU."""
    memory, result = trace.recorded("copies").texts("source_memory"), uploads(trace).copy()
    result[result] = memory.isin(["pageable"])[operations(trace).row[result]]
    return result


def staged_uploads(trace: Trace) -> Mask:
    """True for the gaps, of every_gap, while CUDA moves the bytes of an upload to pinned memory."""
    every = every_gap(trace)
    staged = (every.cause == COPY_WAIT) & (stalls(trace).wait >= 0)
    result: Mask = staged & np.append(pageable_uploads(trace), False)[every.after]
    return result


def at_uploads(trace: Trace) -> Mask:
    """True for the gaps, of every_gap, after a copy from the host or while its bytes are moved."""
    every = every_gap(trace)
    staged = (every.cause == COPY_WAIT) & (stalls(trace).wait >= 0)
    return after_uploads(trace) | (staged & uploads(trace)[every.after])

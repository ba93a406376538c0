"""When each process compiled GPU code: torch.compile, Triton, XLA, NVRTC, autotuners.

What shows it, each by itself:

1. Compilations that torch.compile reported (see `python_events`), and samples of Python stacks of
   a thread that calls CUDA, with a frame in a compiler.
2. Ranges of XLA, nvFuser and NVRTC around compilation, kernels that only autotuners launch, and
   trials of convolution algorithms and of configurations (see `algorithm_trials`,
   `configuration_trials`).
3. Compiler processes (ptxas, gcc) that start while the process launches nothing. nsys lists every
   process it follows among its overheads. Samples are more exact, so that where there are some, a
   compiler process shows only the time between the first and the last. Which tool started them is
   told by the kernels that ran.
4. Without samples, a pause in a thread's calls that ends in its loading the code of a kernel that
   CuPy, Numba, Warp, nvFuser or XLA generated. Calls that only ask for something end no pause.

Other loading of code at its first use (cuModuleLoad, cuLibraryLoad inside a launch) is not
compilation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import ColumnRecord, Texts
from traceview.base.tables.arrays import NULL, Array, Integers, Mask, RowNumbers, picked
from traceview.traces.facts import code, operations, python_events, trials
from traceview.traces.facts.kernel_classes import KernelClass, framework, kernel_classes
from traceview.traces.facts.ranges.origins import range_name_forms
from traceview.traces.facts.samples import compiler_frames
from traceview.traces.trace import Trace, fact

LEAST_NS = 10_000_000
"""Shorter compilation cannot be distinguished from the lookup of a compiled function."""
PAUSE_NS = 20_000_000
"""Compilation goes on after a pause of this length, whatever happens in it."""
IDLE_PAUSE_NS = 1_000_000_000
"""Compilation goes on after a pause of this length in which nothing was launched."""
STRETCH_NS = 100_000_000
"""A process that launches nothing for so long may be waiting for a compiler."""
_LEAST_SHOWN = 0.1
"""Part of a window that evidence covers: launches of compiled kernels, some of which pass a frame
of the compiler for a moment, covered 1 % (a public recording of torch.compile on AMD)."""
_PERIODS = 4
_ASKS = re.compile(r"(cuda|cu|hip)\w*(Get|(Set|Push|Pop)Current|SetDevice)")
"""XLA sets the context and asks for the free memory before it loads a program."""
_DIGITS = re.compile(r"\d+")
_NEVER = np.iinfo(np.int64).max


@record
class Compilation(ColumnRecord):
    """Windows of compilation, by process and start; one row per window.

    `tool` is an index into `code.TOOLS`: the one with most of the time.
    """

    process: RowNumbers
    start_ns: Integers
    end_ns: Integers
    tool: Array

    def of(self, process: int) -> Intervals:
        """The windows of one process, disjoint and in order."""
        rows = self.process == process
        return Intervals(self.start_ns[rows], self.end_ns[rows])


@fact
def compilation(trace: Trace) -> Compilation:
    """The compilation of the processes that use a GPU, until their last work there."""
    rows = []
    for process in working_processes(trace):
        by_tool: dict[int, Intervals] = {}
        for tool, shown in _evidence(trace, process):
            by_tool[tool] = _together(by_tool.get(tool, intervals.EMPTY), shown)
        # Trials of other kernels that compilation follows at once, as where Inductor pads a GEMM.
        others = _configurations(trace, process).others
        starts = np.sort(np.concatenate([others.start[:0], *(w.start for w in by_tool.values())]))
        follows = np.append(starts, _NEVER)[np.searchsorted(starts, others.start)]
        followed = follows - others.end <= PAUSE_NS
        if followed.any():
            tool, before = _tuner(trace, process), Intervals(*(side[followed] for side in others))
            by_tool[tool] = _together(by_tool.get(tool, intervals.EMPTY), before)
        windows = _merged(trace, process, _together(*by_tool.values()))
        if len(windows.start):
            covered = [intervals.overlap(shown, *windows) for shown in by_tool.values()]
            most = np.array(list(by_tool))[np.argmax(covered, axis=0)]
            numbers = np.full(len(most), process)
            kept = windows.start <= last_work_ns(trace, process)
            rows.append(np.stack([numbers, *windows, most], axis=1)[kept])
    every = np.concatenate([np.zeros((0, 4), np.int64), *rows])
    return Compilation(
        every[:, 0].astype(np.int32), every[:, 1], every[:, 2], every[:, 3].astype(np.uint8)
    )


@fact
def working_processes(trace: Trace) -> tuple[int, ...]:
    """The processes that launched something, or whose work on a GPU was recorded, ascending.

    Where the recording lost all of that, those that called CUDA.
    """
    launching = trace.recorded("api_calls")["process"][_launching(trace)]
    every = np.concatenate([launching, operations.operations(trace).process])
    if not len(every):
        every = trace.recorded("api_calls")["process"]
    return tuple(groups.different(every).tolist())


def xla_trials(trace: Trace, process: int) -> Intervals:
    """When XLA shows that it compiles in a process: what is launched then is none of a loop."""
    if framework(trace) != "jax":
        return intervals.EMPTY
    return _together(*(shown for tool, shown in _evidence(trace, process) if tool == code.JAX))


def last_work_ns(trace: Trace, process: int) -> int:
    """End of the last work of a process on a GPU, or of its last launch call."""
    calls, last = trace.recorded("api_calls"), int(_last_work_ns(trace)[process])
    return last if last >= 0 else int(calls["end_ns"][calls["process"] == process].max(initial=0))


@fact
def _last_work_ns(trace: Trace) -> Integers:
    """Of each process, the end of its last work or launch call; −1 without any."""
    ops, calls = operations.operations(trace), trace.recorded("api_calls")
    result = np.full(len(trace.recorded("processes")), -1, np.int64)
    launching = np.flatnonzero(_launching(trace))
    np.maximum.at(result, calls["process"][launching], calls["end_ns"][launching].clip(0))
    np.maximum.at(result, ops.process, ops.end_ns.clip(0))
    return result


def compiling(trace: Trace, start: Integers, end: Integers, windows: Mask | None = None) -> Mask:
    """True for the times [start, end) of which some process compiled for more than half.

    Only the chosen `windows` count, rows of `compilation`; all without.
    """
    every = compilation(trace)
    chosen = slice(None) if windows is None else windows
    covered = intervals.covered(every, chosen)
    return 2 * intervals.overlap(covered, start, end) > end - start


@fact
def _launching(trace: Trace) -> Mask:
    return operations.call_kinds(trace) == operations.CallKind.LAUNCH


def launch_times(trace: Trace, process: int) -> Integers:
    """When a process called launches, ascending; shape (launches,)."""
    start, first = _launches_by_process(trace)
    return start[first[process] : first[process + 1]]


@fact
def _launches_by_process(trace: Trace) -> tuple[Integers, Integers]:
    """Starts of launch calls by process and time, and where those of each process begin."""
    calls, rows = trace.recorded("api_calls"), np.flatnonzero(_launching(trace))
    process, start = picked(calls["process"], rows), picked(calls["start_ns"], rows)
    order = groups.order_of(process) if groups.in_order(start) else np.lexsort((start, process))
    every = np.arange(len(trace.recorded("processes")) + 1)
    return picked(start, order), np.searchsorted(picked(process, order), every)


def _together(*parts: Intervals) -> Intervals:
    starts, ends = zip(intervals.EMPTY, *parts, strict=True)
    return intervals.union(np.concatenate(starts), np.concatenate(ends))


def _merged(trace: Trace, process: int, every: Intervals) -> Intervals:
    """The evidence as windows, over pauses in which compilation went on."""
    if not len(every.start):
        return every
    launches = launch_times(trace, process)
    pause = every.start[1:] - every.end[:-1]
    first, last = (np.searchsorted(launches, edge) for edge in (every.end[:-1], every.start[1:]))
    apart = (pause > PAUSE_NS) & ((last > first) | (pause > IDLE_PAUSE_NS))
    start = every.start[np.append(True, apart)]
    end = every.end[np.append(apart, True)]
    shown = intervals.overlap(every, start, end) >= _LEAST_SHOWN * (end - start)
    long = shown & (end - start >= LEAST_NS)
    return Intervals(start[long], end[long])


def _evidence(trace: Trace, process: int) -> Iterator[tuple[int, Intervals]]:
    """Windows by tool, each a union, some empty; a tool may come several times."""
    by_stack = list(_sampled(trace, process))
    yield from by_stack
    yield code.TORCH_COMPILE, python_events.compilations(trace, process)
    for tool, rows in enumerate(_compiling_ranges(trace)):
        yield tool, _of_ranges(trace, process, rows)
    if not by_stack:
        yield from _before_loads(trace, process)
    # The autotuner that launches kernels of its own: in a program of JAX that is XLA.
    jax = framework(trace) == "jax"
    yield code.JAX if jax else code.AUTOTUNER, _autotuner_kernels(trace, process)
    tuned = _configurations(trace, process).tuned
    if len(tuned.start):
        yield _tuner(trace, process), tuned
    yield code.CUDNN, trials.algorithm_trials(trace).get(process, intervals.EMPTY)
    rest = _beside_processes(trace, process, bool(by_stack))
    if len(rest.start):
        yield _generator(trace, process), rest


def _configurations(trace: Trace, process: int) -> trials.ConfigurationTrials:
    none = trials.ConfigurationTrials(intervals.EMPTY, intervals.EMPTY)
    return trials.configuration_trials(trace).get(process, none)


def _tuner(trace: Trace, process: int) -> int:
    """The tool whose kernels are tried."""
    tool = _generator(trace, process)
    return code.AUTOTUNER if tool == code.UNKNOWN else tool


def _generator(trace: Trace, process: int) -> int:
    """The tool behind compiler processes: the one that generated the first such kernel that ran."""
    kernels = trace.recorded("kernels")
    names = kernels.texts("name")
    generated = names.matching(lambda name: code.tool_of_kernel(name) >= 0)
    rows = np.flatnonzero((kernels["process"] == process) & generated)
    if not len(rows):
        return code.UNKNOWN
    return code.tool_of_kernel(str(names[rows[np.argmin(kernels["start_ns"][rows])]]))


def _sampled(trace: Trace, process: int) -> Iterator[tuple[int, Intervals]]:
    """Compilation that samples of Python stacks show, by tool."""
    if "python_samples" not in trace.tables or "python_frames" not in trace.tables:
        return
    samples, calls = trace.tables["python_samples"], trace.recorded("api_calls")
    rows = np.flatnonzero(samples["process"] == process)
    rows = rows[np.isin(samples["thread"][rows], groups.different(calls["thread"]))]
    tool = np.append(compiler_frames(trace).tool, -1)[samples["stack"][rows]]
    start, launches = samples["time_ns"][rows], launch_times(trace, process)
    end = start.copy()
    for of_thread in groups.rows_of(samples["thread"][rows]).values():
        time = start[of_thread]
        usual = int(np.median(np.diff(time))) if len(time) > 1 else 0
        after = np.append(time[1:], time[-1:] + usual)
        # A compiler that holds the interpreter lock takes no samples, and launches nothing.
        launched = np.searchsorted(launches, after) > np.searchsorted(launches, time)
        goes_on = np.append(tool[of_thread][1:] >= 0, False) & ~launched
        end[of_thread] = np.where(goes_on, after, np.minimum(after, time + _PERIODS * usual))
    for number in groups.different(tool[tool >= 0]).tolist():
        yield number, intervals.union(start[tool == number], end[tool == number])


def _of_ranges(trace: Trace, process: int, every: Integers) -> Intervals:
    """When a tool compiled for the work of a process, by its ranges in these rows.

    A range that ends after that work compiles nothing for it: the recorder lost its end.
    """
    ranges = trace.recorded("ranges")
    rows = every[ranges["process"][every] == process]
    rows = rows[ranges["end_ns"][rows] <= last_work_ns(trace, process)]
    return intervals.covered(ranges, rows)


@fact
def _compiling_ranges(trace: Trace) -> tuple[Integers, ...]:
    """By tool, the ranges around its compilation that ended."""
    ranges = trace.recorded("ranges")
    result = [np.zeros(0, np.int64) for _ in code.TOOLS]
    left = ranges["end_ns"] != NULL
    for tool, domain, names in code.RANGES:
        rows = left & (ranges.texts("domain").isin([domain]) if domain else True)
        if rows.any():
            rows &= range_name_forms(trace).matching(names)[ranges.texts("name").codes]
            left &= ~rows
            result[tool] = np.flatnonzero(rows)
    return tuple(result)


@fact
def compiles_for_the_first_time(trace: Trace) -> Mask:
    """True for the windows in which XLA names what it compiles, and compiled none of it before.

    Names that differ in their numbers alone are one module.
    """
    ranges, windows = trace.recorded("ranges"), compilation(trace)
    named = range_name_forms(trace).matching(code.XLA_MODULE)[ranges.texts("name").codes]
    rows = np.flatnonzero(named & (ranges["end_ns"] != NULL))
    rows = rows[np.argsort(ranges["start_ns"][rows], kind="stable")]
    names = ranges.texts("name").take(rows).decode()
    module = groups.group(Texts.of([_DIGITS.sub("#", str(name)) for name in names]).codes)
    start, process = ranges["start_ns"][rows], ranges["process"][rows]
    again = np.ones(len(rows), bool)
    again[groups.group(process, module.ids).first] = False
    result = np.zeros(len(windows), bool)
    for row in range(len(windows)):
        inside = (process == windows.process[row]) & (start >= windows.start_ns[row])
        inside &= start < windows.end_ns[row]
        result[row] = inside.any() and not again[inside].any()
    return result


def _before_loads(trace: Trace, process: int) -> Iterator[tuple[int, Intervals]]:
    """Pauses in which a kernel was compiled that its thread then loads and launches, by tool."""
    # Pauses of threads that end in a load of code: start, end, and the call that launches next.
    calls, kinds = trace.recorded("api_calls"), operations.call_kinds(trace)
    asks = calls.texts("name").matching(_ASKS.match) & (kinds == operations.CallKind.OTHER)
    own = np.flatnonzero((calls["process"] == process) & ~asks)
    own = own[np.argsort(calls["start_ns"][own], kind="stable")]
    pauses = [np.zeros((3, 0), np.int64)]
    for of_thread in groups.rows_of(calls["thread"][own]).values():
        rows = own[of_thread]
        start, until = calls["start_ns"][rows], np.maximum.accumulate(calls["end_ns"][rows])
        loads = np.flatnonzero(kinds[rows] == operations.CallKind.LOAD)
        loads = loads[loads > 0]
        loads = loads[start[loads] - until[loads - 1] >= PAUSE_NS]
        launches = np.flatnonzero(kinds[rows] == operations.CallKind.LAUNCH)
        following = np.searchsorted(launches, loads)
        loads, following = (each[following < len(launches)] for each in (loads, following))
        pauses.append(np.stack([until[loads - 1], start[loads], rows[launches[following]]]))
    start, end, launch = np.concatenate(pauses, axis=1)
    ops, names = operations.operations(trace), trace.recorded("kernels").texts("name")
    rows = np.flatnonzero((ops.kind == operations.Kind.KERNEL) & groups.isin(ops.call, launch))
    tool_of = {int(ops.call[row]): code.tool_of_kernel(str(names[ops.row[row]])) for row in rows}
    # Programs of XLA also launch kernels of libraries, and have names such as broadcast_3.
    other = code.JAX if framework(trace) == "jax" else -1
    tool = np.array([tool_of.get(call, other) for call in launch.tolist()], np.int64)
    tool[tool < 0] = other
    for each in code.AT_FIRST_CALL:
        yield each, intervals.union(start[tool == each], end[tool == each])


def first_calls(trace: Trace, process: int, tool: int) -> int:
    """How often a pause before a first launch shows that a tool compiled in a process."""
    return sum(len(shown.start) for each, shown in _before_loads(trace, process) if each == tool)


def only_by_pauses(trace: Trace, tool: int) -> bool:
    """Whether pauses before first launches alone show what a tool compiled."""
    sampled = len(trace.recorded("python_samples")) or len(_compiling_ranges(trace)[tool])
    return tool in code.AT_FIRST_CALL and not sampled


def _autotuner_kernels(trace: Trace, process: int) -> Intervals:
    """Time from one autotuner kernel to the next, where they follow each other closely."""
    kernels, every = trace.recorded("kernels"), _autotuner_rows(trace)
    rows = every[kernels["process"][every] == process]
    covered = intervals.covered(kernels, rows)
    if not len(covered.start):
        return covered
    apart = covered.start[1:] - covered.end[:-1] > PAUSE_NS
    return Intervals(covered.start[np.append(True, apart)], covered.end[np.append(apart, True)])


@fact
def _autotuner_rows(trace: Trace) -> Integers:
    return np.flatnonzero(kernel_classes(trace) == KernelClass.AUTOTUNER)


def _beside_processes(trace: Trace, process: int, sampled: bool) -> Intervals:
    """Stretches without launches in which compiler processes started."""
    time, launches = compiler_starts(trace), launch_times(trace, process)
    if not len(time) or not len(launches):
        return intervals.EMPTY
    bound = np.concatenate([[np.iinfo(np.int64).min // 2], launches])
    number = np.searchsorted(bound, time, side="right") - 1
    number, first = np.unique(number, return_index=True)
    last = np.append(first[1:], len(time)) - 1
    inner = number + 1 < len(bound)
    number, first, last = number[inner], first[inner], last[inner]
    begin, end = bound[number], bound[number + 1]
    long = end - begin >= STRETCH_NS
    # Before the first launch there is no stretch: the program may have done anything.
    exact = np.full(len(number), sampled) | (number == 0)
    start = np.where(exact, time[first], begin)
    stop = np.where(exact, time[last], end)
    return intervals.union(start[long], stop[long])


@fact
def compiler_starts(trace: Trace) -> Integers:
    """When the recorder first saw each process of a compiler, ascending."""
    overheads, threads = trace.recorded("overheads"), trace.recorded("threads")
    processes = trace.recorded("processes")
    if not len(overheads):
        return np.zeros(0, np.int64)
    # Processes are called by their path.
    is_compiler, by_thread = (
        table.texts("name").matching(lambda name: code.PROCESSES.match(name.rpartition("/")[2]))
        for table in (processes, threads)
    )
    is_compiler[threads["process"][by_thread]] = True
    # Whatever calls CUDA or launches work is the program itself.
    is_compiler[groups.different(trace.recorded("api_calls")["process"])] = False
    is_compiler[groups.different(operations.operations(trace).process)] = False
    seen = ~overheads.is_null("process")
    seen[seen] = is_compiler[overheads["process"][seen]]
    first = np.full(len(processes), _NEVER)
    np.minimum.at(first, overheads["process"][seen], overheads["start_ns"][seen])
    return np.sort(first[first < _NEVER])

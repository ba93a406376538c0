"""Findings of `phases`: what compilation cost, and kernels launched one by one that a CUDA
graph replays.

Compilation before a loop is paid once per run, so its severity is its share of the run that was
recorded. In a loop it is a loss of every step. Trials of convolution algorithms are paid once in
any case and only reported. Also: kernels that a CUDA graph replays faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from traceview.base import groups, intervals
from traceview.base.findings import Clause, LostTime, Severity, Subject, severity_of, share_pct
from traceview.base.records import record
from traceview.base.tables import Cell, Integers, Mask
from traceview.base.vocabulary.causes import CAUSE_NAMES, LAUNCH_LATE
from traceview.traces.analyses import wording
from traceview.traces.analyses.phases import guards, phases
from traceview.traces.facts import code, compilation, launches, operations, python_events
from traceview.traces.facts.idle.broken_graphs import broken_graphs
from traceview.traces.facts.idle.first_calls import shows_first_calls_alone
from traceview.traces.facts.idle.gaps import gaps, steady_spans_ns
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.facts.samples import SampledLine, compiler_frames, line_of, stack_lines
from traceview.traces.facts.steps import recompilation, steps
from traceview.traces.rules import Claims, FindingRule, TimeClaim, gpu_subject
from traceview.traces.trace import Trace, fact, model

# Kernels that a CUDA graph replays, where the process also launches them one by one.
#
# Both are passes of the same kernels in the same order, so their times compare directly. Graphs
# recorded whole do not show their kernels and are left out.

LEAST_KERNELS = 4
"""Shorter sequences recur by chance."""
MOST_GRAPHS = 64
_BASE, _SPREAD = np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(0xD6E8_FEB8_6659_FD93)
Hashes = npt.NDArray[np.uint64]


@record
class Replayed:
    """A sequence of kernels that ran both ways; the spans are from first start to last end.

    `launched` is, as a row of operations, the first kernel of each pass that was launched kernel by
    kernel, `launched_ns` the span of the pass; `steady` is False for passes of warm-up.
    """

    process: int
    kernels: int
    launched: Integers
    launched_ns: Integers
    steady: Mask
    replays: int
    replay_ns: int
    kernel_ns: int

    @property
    def median_ns(self) -> int:
        return int(np.median(self.launched_ns))


@fact
def replayed_sequences(trace: Trace) -> tuple[Replayed, ...]:
    """The sequences that the selected work ran both ways, by process and most replays."""
    ops = operations.operations(trace)
    chosen = (ops.kind == operations.Kind.KERNEL) & selected_operations(trace) & ops.launched
    node = launches.cuda_graphs(trace).node
    sequences: list[Replayed] = []
    for process in groups.different(ops.process[chosen & node]).tolist():
        own = chosen & (ops.process == process)
        sequences += _of_process(trace, int(process), np.flatnonzero(own & node), own & ~node)
    return tuple(sequences)


def _of_process(trace: Trace, process: int, nodes: Integers, alone: Mask) -> Iterator[Replayed]:
    """Yield the sequences of one process.

    `nodes` are rows of operations launched by graphs; `alone` is the mask of those launched singly.
    """
    ops, names = operations.operations(trace), _names(trace)
    nodes = nodes[np.argsort(ops.call[nodes], kind="stable")]
    replay = groups.group(ops.call[nodes])
    place = np.arange(len(nodes)) - replay.first[replay.ids]
    hashes = np.zeros(replay.size, np.uint64)
    np.add.at(hashes, replay.ids, names[nodes] * _powers(int(place.max()) + 1)[place])
    length = groups.count(replay)
    end = np.full(replay.size, np.iinfo(np.int64).min)
    np.maximum.at(end, replay.ids, ops.end_ns[nodes])
    span, busy = (
        end - ops.start_ns[nodes][replay.first],
        groups.sums(replay, ops.duration_ns[nodes]),
    )
    sequences, which, count = np.unique(
        np.stack((length.astype(np.uint64), hashes)),
        axis=1,
        return_inverse=True,
        return_counts=True,
    )
    rows = np.flatnonzero(alone)
    terms = names[rows] * _powers(len(rows))[: len(rows)]
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)))
    for number in groups.most_first(count)[:MOST_GRAPHS].tolist():
        kernels, own = int(sequences[0, number]), which.reshape(-1) == number
        starts = _passes(sums, kernels, sequences[1, number])
        if kernels < LEAST_KERNELS or not len(starts):
            continue
        first, last = rows[starts], rows[starts + kernels - 1]
        yield Replayed(
            process,
            kernels,
            first,
            ops.end_ns[last] - ops.start_ns[first],
            ~steps.operations_in_warm_up(trace)[first]
            & ~_warms_up(ops.start_ns[first], int(ops.start_ns[nodes[own[replay.ids]]].min())),
            int(count[number]),
            int(np.median(span[own])),
            int(np.median(busy[own])),
        )


_WARM_UP = 4
"""PyTorch calls what it captures 3 times before (make_graphed_callables); a JIT captures at the
second or third call. More passes are a loop."""


def _warms_up(begun_ns: Integers, replayed_ns: int) -> Mask:
    """True for passes before the first replay, where they are so few as to warm the graph up."""
    before: Mask = begun_ns < replayed_ns
    return before & (np.count_nonzero(before) <= _WARM_UP)


def _names(trace: Trace) -> Hashes:
    """A number per operation, equal for kernels of one name and grid; undefined for others."""
    ops, kernels = operations.operations(trace), trace.recorded("kernels")
    grid = tuple(kernels[f"grid_{axis}"] for axis in "xyz")
    alike = groups.group(kernels.texts("name").codes, *grid).ids
    result = np.zeros(len(ops), np.uint64)
    is_kernel = ops.kind == operations.Kind.KERNEL
    result[is_kernel] = (alike[ops.row[is_kernel]].astype(np.uint64) + np.uint64(1)) * _SPREAD
    return result


def _powers(count: int) -> Hashes:
    """Powers of the base from 0 on, modulo 2^64."""
    result = np.full(max(count, 1), _BASE)
    result[0] = 1
    return np.cumprod(result, dtype=np.uint64)


def _passes(sums: Hashes, kernels: int, sought: np.uint64) -> Integers:
    """Starts of the occurrences, without overlap, of the sequence whose hash is `sought`."""
    windows = len(sums) - kernels
    if windows <= 0:
        return np.zeros(0, np.int64)
    hit = np.flatnonzero(sums[kernels:] - sums[:windows] == sought * _powers(windows)[:windows])
    starts, after = [], 0
    while (place := int(np.searchsorted(hit, after))) < len(hit):
        starts.append(int(hit[place]))
        after = starts[-1] + kernels
    return np.array(starts, np.int64)


_LEAST_SAMPLES, _LEAST_FRACTION, _LEAST_PART = 5, 0.5, 0.1
"""A line with fewer samples, or a smaller part of those in the program, is not named. One with less
than half is named with its part, as the lines of launches are."""
_SEVERITIES: tuple[tuple[float, Severity], ...] = (
    (0.50, "high"),
    (0.25, "medium"),
    (0.10, "low"),
    (0.01, "info"),
)
"""Fractions of the run, without start-up and shut-down, from which compilation counts."""

_REMEDIES = {
    code.TORCH_COMPILE: "Use a compile cache that outlives the run: put "
    "TORCHINDUCTOR_CACHE_DIR on persistent storage, or ship torch.compiler.save_cache_artifacts() "
    "with the program. Compile fewer graphs (TORCH_LOGS=graph_breaks lists why there are several).",
    code.TRITON: "Use a cache that outlives the run: put TRITON_CACHE_DIR on a disk that "
    "stays. Give autotuners fewer configurations, or cache their choice (cache_results=True).",
    code.JAX: "Use JAX's persistent cache: set JAX_COMPILATION_CACHE_DIR, and "
    "jax_persistent_cache_min_compile_time_secs=0 where many programs are small.",
    code.CUPY: "Use a cache that outlives the run: put CUPY_CACHE_DIR on persistent storage.",
    code.NUMBA: "Use cache=True in numba's jit decorators, with NUMBA_CACHE_DIR on a disk "
    "that stays.",
    code.EXTENSION: "Use a build folder that outlives the run (TORCH_EXTENSIONS_DIR), or "
    "build the extension when it is installed.",
    code.AUTOTUNER: "Use the autotuner's cache, so that its choice outlives the run. Each new size "
    "is tuned anew: pad sizes that vary, or leave them out of its key (triton.autotune).",
    code.CUDNN: "Check whether input sizes change: cudnn.benchmark tries its algorithms once "
    "per size. The last batch of an epoch is often smaller (drop_last=True). A longer run pays "
    "this once.",
    code.UNKNOWN: "Use the compiler's cache, so that its result outlives the run.",
    code.NVFUSER: "Warm up with each input shape: it compiles at the first "
    "call. NVFUSER_ENABLE=kernel_db keeps what is compiled for the next run.",
    code.WARP: "Keep Warp's kernel cache (wp.config.kernel_cache_dir) on a disk that stays, and "
    "compile before the loop with wp.load_module().",
    code.NVRTC: "Keep what NVRTC compiles (cubin or PTX) in a file, and load that at the next run.",
}
_ONE_BY_ONE = 6
"""From so many windows, or pauses before first calls, JAX compiled operations one by one."""
_ONE_PROGRAM = (
    "Use JAX's persistent cache (set JAX_COMPILATION_CACHE_DIR), and put set-up such as model.init "
    "and updates into one jax.jit: outside, each operation is a program of its own "
    "(JAX_LOG_COMPILES=1 lists them). Set jax_persistent_cache_min_compile_time_secs=0 to keep "
    "small programs, too. Call it once before you measure."
)
_RECOMPILATION = {
    code.TORCH_COMPILE: "Look at why it recompiles with TORCH_LOGS=recompiles. For sizes that "
    "vary, use torch.compile(dynamic=True) or torch._dynamo.mark_dynamic, or pad them to a few "
    "sizes; keep Python numbers that change out of the compiled function.",
    code.JAX: "Look at why it recompiles with JAX_LOG_COMPILES=1. Pad sizes that vary to a "
    "few sizes, and pass Python numbers that change as arrays, not as static arguments.",
    code.TRITON: "Use do_not_specialize for integer arguments that change, and fewer "
    "tl.constexpr arguments whose value varies.",
}
_BY_GUARD = (
    (
        r"size mismatch|stride mismatch|size\(\)|shape",
        "Mark the size that varies as dynamic (torch._dynamo.mark_dynamic(tensor, dimension), or "
        "torch.compile(dynamic=True)), or pad it to a few sizes.",
    ),
    (
        r" == -?[\d.]+",
        "Pass the number that changes as a tensor, or keep it out of the compiled function.",
    ),
    (
        r"",
        "Keep the value that the guard names constant, or compile a function per case.",
    ),
)
"""Remedies by the guard that fails. The first pattern that is found counts."""
_RECOMPILATION_OF_ALL = (
    "Look at what changes from pass to pass (sizes, types, constants): each new combination is "
    "compiled again. Pad sizes to a few, or compile them all before the loop."
)


def _recompiled(trace: Trace) -> Iterator[TimeClaim]:
    """Compilation in a loop, which every step pays for."""
    process, own = _longest_compiling(trace)
    chosen = own & recompilation.recompilation(trace) if own.any() else own
    if not chosen.any():
        return
    windows, end = compilation.compilation(trace), compilation.last_work_ns(trace, process)
    span_ns = end - int(windows.start_ns[chosen].min())
    # What is still being compiled when the recording ends delays no work.
    compile_ns = int((np.minimum(windows.end_ns, end) - windows.start_ns)[chosen].sum())
    severity, hit = severity_of(compile_ns, span_ns), _steps_hit(trace, process, chosen)
    if severity is None:
        return
    values: dict[str, Cell] = {
        "compile_ns": compile_ns,
        "compile_pct": share_pct(compile_ns, span_ns),
        **hit,
    }
    inside = intervals.covered(windows, chosen)
    recompiled = python_events.of_kind(trace, python_events.RECOMPILATION, process, inside)
    again = next((each for each in recompiled if each.reasons), None)
    line, part = _compiled_line(trace, process, chosen)
    call = again or (line if part == 1 else None)
    if again:
        values |= {"code": again.name, "place": again.place, "guard": again.reasons[0]}
    elif call:
        values |= {"site": call.place, **({"source": call.source} if call.source else {})}
    claim = _claim(trace, process, chosen, severity, values)
    yield replace(
        claim,
        subject=call.subject if call else claim.subject,
        saved_ns=compile_ns,
        span_ns=span_ns,
        words={
            **claim.words,
            # Between steps, it hits none.
            "times": "in {steps_hit} of {steps:step}"
            if hit.get("steps_hit")
            else "{stretches:time}",
        },
        remedy=_recompilation_remedy(_total(trace, chosen)[1], again),
    )


def _recompilation_remedy(tool: int, again: python_events.CompiledCode | None) -> str:
    if again is None:
        return _RECOMPILATION.get(tool, _RECOMPILATION_OF_ALL)
    guard = again.reasons[0]
    return next(remedy for pattern, remedy in _BY_GUARD if re.search(pattern, guard))


def _reported(kind: str) -> Claims:
    """Claims on what torch.compile reported of one kind, for the process with most of it."""

    def claims(trace: Trace) -> Iterator[TimeClaim]:
        by_process = {
            process: python_events.of_kind(trace, kind, process)
            for process in compilation.working_processes(trace)
        }
        process = max(by_process, key=lambda each: len(by_process[each]), default=-1)
        if not by_process.get(process):
            return
        first, *others = by_process[process]
        frames = {
            (each.file, each.line)
            for compiled in (python_events.COMPILATION, python_events.RECOMPILATION)
            for each in python_events.of_kind(trace, compiled, process)
        }
        every = gaps(trace)
        yield TimeClaim(
            first.subject,
            {
                "code": first.function if kind == python_events.BREAK else first.name,
                "site": first.place,
                **({"reason": first.reasons[0]} if first.reasons else {}),
                **({"source": first.source} if first.source else {}),
                **({"others": len(others)} if others else {}),
                **({"graphs": len(frames)} if len(frames) > 1 else {}),
            },
            "compiled",
            {"kind": kind, "file": first.file, "line": first.line},
            # What gpu-idle says of late launches names the break where it makes them.
            severity="low"
            if any(
                severity_of(int(every.idle_ns[every.steady(device, LAUNCH_LATE)].sum()), span_ns)
                in ("high", "medium")
                for device, span_ns in steady_spans_ns(trace).items()
            )
            and (kind != python_events.BREAK or not broken_graphs(trace))
            else "info",
        )

    return claims


def _remedy_once(trace: Trace, tool: int) -> str:
    """The remedy for compilation before a loop, or for a recording of nothing else."""
    remedy = _REMEDIES[tool]
    if tool == code.CUDNN or not shows_first_calls_alone(trace):
        return remedy
    return f"{_CALL_BEFORE}{remedy[0].lower()}{remedy[1:]}"


def _compiled_once(trace: Trace) -> Iterator[TimeClaim]:
    """Compilation before a loop, which a run pays for once."""
    process, own = _longest_compiling(trace)
    chosen = own & ~recompilation.recompilation(trace) if own.any() else own
    if not chosen.any():
        return
    whole_ns, since = _working(trace, process)
    compile_ns, tool = _total(trace, chosen)
    fraction = compile_ns / max(whole_ns, 1)
    severity = next((name for least, name in _SEVERITIES if fraction >= least), None)
    if severity is None:
        return
    remedy, trials = _remedy_once(trace, tool), tool == code.CUDNN
    if tool == code.UNKNOWN and not model.recording_options(trace).python_samples:
        ours = "traceview record"
        how = wording.by_recorder(trace, ours, "torch.profiler.profile(with_stack=True)", ours)
        remedy += f" Record with {how} to see which compiler this is."
    # Of a program that ran on, nobody knows what share of the run it is.
    if compilation.only_by_pauses(trace, tool) or "first_s" in trace.run:
        severity = "medium" if severity == "high" else severity
    values: dict[str, Cell] = {
        "compile_pct": min(100.0 * fraction, 100.0),
        "working_ns": whole_ns,
    }
    broken, subject = python_events.of_kind(trace, python_events.BREAK, process), None
    call, part = _compiled_line(trace, process, chosen)
    one_by_one = max(int(chosen.sum()), compilation.first_calls(trace, process, tool))
    if tool == code.JAX and (one_by_one >= _ONE_BY_ONE or part < 1):
        remedy = _ONE_PROGRAM
    if tool == code.TORCH_COMPILE and broken:
        at = broken[0]
        values |= {"broken": at.function, "site": at.place, "source": at.source}
        values["reason"] = at.reasons[0] if at.reasons else None
        remedy, subject = f"{wording.KEEP_GRAPH_WHOLE} {remedy}", at.subject
    elif again := _again(trace, process, chosen):
        values |= {"recompiled": again.name, "place": again.place, "guard": again.reasons[0]}
        values |= {"times": again.times, "again_ns": again.total_ns}
        remedy, subject = _recompilation_remedy(tool, again), again.subject
    elif not trials and call:
        values["calling"] = call.named_function
        if part == 1:
            values |= {"called": call.place, "called_source": call.source}
        else:
            values |= {"called_more": call.place, "called_pct": 100 * part}
            values["called_else"] = call.elsewhere
        subject = call.subject
    claim = _claim(trace, process, chosen, "info" if trials else severity, values)
    claim = replace(claim, subject=subject or claim.subject)
    idle = "idle" if _gpus_idle(trace, chosen) else ""
    lead = "" if trials else "Compilation by "
    words = {**claim.words, "lead": lead, "since": since, "idle": idle}
    yield replace(claim, words=words, remedy=remedy)


_CALL_BEFORE = (
    "Make the first calls before the recording, and record several passes: no other time counts "
    "here. To start sooner: "
)
_MUCH_AGAIN = 0.25
"""Less of a compilation is not what it is about, as of idle time (`_GOOD_PART`): it was 11.0 of
32.2 s where each of 8 sizes was compiled, without the backward passes that came with them."""


def _again(trace: Trace, process: int, chosen: Mask) -> python_events.CompiledCode | None:
    """The function that torch.compile compiled again for much of the time of some windows.

    It need not do so in each step: sizes that vary are learned one by one.
    """
    inside = intervals.covered(compilation.compilation(trace), chosen)
    again = python_events.of_kind(trace, python_events.RECOMPILATION, process, inside)
    least_ns = _MUCH_AGAIN * _total(trace, chosen)[0]
    enough = (e for e in again if e.times >= recompilation.RECURS and e.total_ns >= least_ns)
    return next((each for each in enough if each.reasons), None)


def _longest_compiling(trace: Trace) -> tuple[int, Mask]:
    """The process that compiled longest, and its windows; others usually compile the same."""
    windows = compilation.compilation(trace)
    if not len(windows) or not phases.selected_phases(trace).any():
        return -1, np.zeros(len(windows), bool)
    duration = windows.end_ns - windows.start_ns
    by_process = np.bincount(
        windows.process, duration, minlength=max(compilation.working_processes(trace)) + 1
    )
    process = int(np.argmax(by_process))
    return process, windows.process == process


def _claim(
    trace: Trace, process: int, chosen: Mask, severity: Severity, values: Mapping[str, Cell]
) -> TimeClaim:
    """A claim on some windows of one process; its window is the longest of them."""
    windows = compilation.compilation(trace)
    compile_ns, tool = _total(trace, chosen)
    longest = int(np.argmax(np.where(chosen, windows.end_ns - windows.start_ns, -1)))
    number = int(trace.processes["process_id"][process])
    several = len(groups.different(windows.process)) > 1
    return TimeClaim(
        Subject("process", str(trace.processes.texts("name")[process] or number)),
        {
            "compiler": code.TOOLS[tool],
            "compile_ns": compile_ns,
            "stretches": int(chosen.sum()),
            "process": str(number),
            **values,
        },
        "totals",
        {"process_id": number, "phase": phases.Phase.COMPILATION.label},
        compile_ns,
        window=(int(windows.start_ns[longest]), int(windows.end_ns[longest])),
        words={"number": "{process}" if several else ""},
        severity=severity,
    )


def _total(trace: Trace, chosen: Mask) -> tuple[int, int]:
    """Time of some windows, and the tool with most of it."""
    windows = compilation.compilation(trace)
    duration = (windows.end_ns - windows.start_ns)[chosen]
    tool = np.bincount(windows.tool[chosen], duration, minlength=len(code.TOOLS))
    return int(duration.sum()), int(np.argmax(tool))


def _working(trace: Trace, process: int) -> tuple[int, str]:
    """Time of a process from its first phase but start-up to its shut-down, and since when.

    Start-up that goes on after a first compilation counts: the program may not have got further.
    """
    every = phases.phases(trace)
    own = every.process == process
    begun = every.start_ns[own & ~np.isin(every.phase, phases.WITHOUT_WORK)]
    ended = every.end_ns[own & ~np.isin(every.phase, phases.WITHOUT_WORK[1:])]
    if not len(begun) or not len(ended):
        return 0, ""
    start_up = every.start_ns[own & (every.phase == phases.Phase.START_UP)]
    goes_on = bool((start_up > begun.min()).any())
    since = "from the first compilation on" if goes_on else "after start-up"
    return int(ended.max() - begun.min()), since


def _gpus_idle(trace: Trace, chosen: Mask) -> bool:
    """Whether recorded GPU work fills less than half of some windows."""
    ops, windows = operations.operations(trace), compilation.compilation(trace)
    covered = intervals.covered(windows, chosen)
    work = intervals.covered(ops)
    return len(ops) > 0 and 2 * intervals.intersection(covered, work).total() < covered.total()


def _steps_hit(trace: Trace, process: int, chosen: Mask) -> dict[str, Cell]:
    """The steps of a process in which a window or a reported recompilation in it began, and all.

    Empty without steps.
    """
    all_steps, windows = steps.steps(trace), compilation.compilation(trace)
    told = python_events.events_of(trace, python_events.RECOMPILATION)
    told = told.take(told["process"] == process)
    inside = intervals.inside(intervals.covered(windows, chosen), told["start_ns"])
    start_ns = np.concatenate([windows.start_ns[chosen], told["start_ns"][inside]])
    own = np.flatnonzero(all_steps.process == process)
    if not len(own):
        return {}
    own = own[all_steps.series[own] == np.bincount(all_steps.series[own]).argmax()]
    at = np.searchsorted(all_steps.cpu_start_ns[own], start_ns, side="right") - 1
    inside = (at >= 0) & (start_ns < all_steps.cpu_end_ns[own[at]])
    return {"steps_hit": len(groups.different(at[inside])), "steps": len(own)}


def _compiled_line(trace: Trace, process: int, chosen: Mask) -> tuple[SampledLine | None, float]:
    """The line that called the compiler in most samples of the chosen windows, and 1.

    Where none has most, the one that stands out, and its part: operations of JAX outside jax.jit
    are compiled wherever they are first called.
    In a stack, that is the innermost line of the program outside of the compiler. Stacks of threads
    that autograd starts have none.
    """
    samples, windows = trace.recorded("python_samples"), compilation.compilation(trace)
    covered = intervals.covered(windows, chosen)
    rows = np.flatnonzero(samples["process"] == process)
    stack = samples["stack"][rows[intervals.inside(covered, samples["time_ns"][rows])]]
    compiler, caller = compiler_frames(trace).row[stack], stack_lines(trace).frame[stack]
    # By stack, innermost frame first: callers of the compiler come after it.
    known: Integers = caller[(compiler >= 0) & (caller > compiler)]
    if most := line_of(trace, known, max(_LEAST_SAMPLES, _LEAST_FRACTION * len(known))):
        return most, 1.0
    line = line_of(trace, known, max(_LEAST_SAMPLES, _LEAST_PART * len(known)))
    frames = trace.recorded("python_frames")
    number = groups.count(groups.group(frames.texts("file").codes[known], frames["line"][known]))
    *_, second, first = np.sort(np.concatenate([[0, 0], number]))
    part = first / len(known) if len(known) > _LEAST_SAMPLES else 1.0
    return line if first >= second + _LEAST_SAMPLES else None, part


def _replayed(trace: Trace) -> Iterator[TimeClaim]:
    """Passes launched kernel by kernel after warm-up that a graph of the program replays faster."""

    def slower_ns(passes: Replayed) -> int:
        over_ns = passes.launched_ns[passes.steady] - passes.replay_ns
        return int(np.maximum(over_ns, 0).sum())

    worst = max(replayed_sequences(trace), key=slower_ns, default=None)
    if worst is None:
        return
    ops = operations.operations(trace)
    device = int(ops.device[worst.launched[0]])
    span_ns = steady_spans_ns(trace).get(device, 0)
    severity = severity_of(slower_ns(worst), span_ns)
    if severity is None:
        return
    longest = int(np.argmax(np.where(worst.steady, worst.launched_ns, -1)))
    begun, took = ops.start_ns[worst.launched], worst.launched_ns
    passes = intervals.union(begun[worst.steady], (begun + took)[worst.steady])
    yield TimeClaim(
        gpu_subject(trace, device),
        {
            "kernels": worst.kernels,
            "pass_ns": int(np.median(took[worst.steady])),
            "passes": int(worst.steady.sum()),
            "replay_ns": worst.replay_ns,
        },
        "replays",
        {"kernels": worst.kernels, "replays": worst.replays},
        min(slower_ns(worst), span_ns),
        span_ns=span_ns,
        window=(int(begun[longest]), int((begun + took)[longest])),
        work=LostTime(device, passes),
        cause=CAUSE_NAMES[LAUNCH_LATE],
        severity=severity,
    )


RULES = (
    FindingRule(
        _recompiled,
        "Code was compiled again inside the loop by {compiler}[ in process {number}]: {times}, "
        "{compile_ns} in all, {compile_pct} of the loop.",
        clauses=(
            Clause(" `{code}` at {place} is compiled again: {guard}."),
            Clause(" The call is at {site}[ (`{source}`)]."),
        ),
    ),
    FindingRule(
        _reported(python_events.BREAK),
        "torch.compile breaks the graph of `{code}` at {site}[ (`{source}`)][: {reason}].[ "
        "{others:other line} {others?breaks|break} graphs, too.][ Instead of one graph per "
        "function, there are {graphs} in all.]",
        wording.KEEP_GRAPH_WHOLE,
    ),
    FindingRule(
        _reported(python_events.LIMIT),
        "`{code}` at {site} was compiled as often as torch.compile allows, and runs without "
        "compilation where no version fits[ ({reason})].[ So {others?does|do} {others:other "
        "function}.]",
        "Keep versions few: mark sizes that vary as dynamic (torch._dynamo.mark_dynamic), "
        "and keep numbers that change out of the compiled function.",
    ),
    FindingRule(
        _reported(python_events.UNCOMPILED),
        "torch.compile could not compile `{code}` at {site}, which runs without it[: {reason}].[ "
        "So {others?does|do} {others:other function}.]",
        "Move what it names out of the compiled function.",
    ),
    guards.GUARDS,
    FindingRule(
        _compiled_once,
        "{lead}{compiler}[ in process {number}] took {compile_ns} ({compile_pct} of the "
        "{working_ns} {since}, {stretches:stretch|stretches}).[ The GPU was mostly {idle} then.]",
        clauses=(
            Clause(
                " The graph of `{broken}` breaks at {site}[ (`{source}`)][: {reason}]: each part "
                "is compiled apart."
            ),
            Clause(
                " For {again_ns} of it `{recompiled}` at {place} was compiled again, "
                "{times:time}: {guard}."
            ),
            Clause(
                " By samples, about {called_pct} of it is called {called_more:at}[ in {calling}], "
                "more than {called_else}."
            ),
            Clause(" Most of it is called {called:at}[ in {calling}][ (`{called_source}`)]."),
        ),
    ),
    FindingRule(
        _replayed,
        "{kernels:kernel} take {pass_ns} where the CPU launches each ({passes:time} after "
        "warm-up), and {replay_ns} where a CUDA graph replays them.",
        "Replay the graph there as well, if the sizes are the same.",
    ),
)

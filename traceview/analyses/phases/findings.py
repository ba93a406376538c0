"""Findings of `phases`: what compilation cost, once or again and again.

Compilation before a loop is paid once per run, so its severity is its share of the run that was
recorded. In a loop it is a loss of every step. Trials of convolution algorithms are paid once in
any case and only reported. Also: kernels that a CUDA graph replays faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.analyses.gpu_wording import gpu_subject
from traceview.analyses.phases.compile_calls import compile_call
from traceview.analyses.phases.phases import Phase, Phases
from traceview.analyses.phases.replays import Replayed, replayed_sequences
from traceview.analyses.recorder_wording import by_recorder
from traceview.facts.code import compilers
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.facts.operations.operations import operations
from traceview.facts.phases.compilation import compilation, last_work_ns, working_processes
from traceview.facts.steps.recompilation import recompilation
from traceview.facts.steps.steps import steps
from traceview.findings import (
    Evidence,
    Finding,
    LostTime,
    Severity,
    Subject,
    severity_of,
    share_pct,
)
from traceview.intervals import Intervals
from traceview.tables import Cell, Integers, Mask
from traceview.trace import Trace
from traceview.trace.recording_options import recording_options
from traceview.vocabulary.causes import CAUSE_NAMES, LAUNCH_LATE

HIGH, MEDIUM, LOW, LEAST = 0.50, 0.25, 0.10, 0.01
"""Fractions of the run, without start-up and shut-down, from which compilation counts."""

_REMEDIES = {
    compilers.TORCH_COMPILE: "Use a compile cache that outlives the run: put "
    "TORCHINDUCTOR_CACHE_DIR on persistent storage, or ship torch.compiler.save_cache_artifacts() "
    "with the program. Compile fewer graphs (TORCH_LOGS=graph_breaks lists why there are several).",
    compilers.TRITON: "Use a cache that outlives the run: put TRITON_CACHE_DIR on a disk that "
    "stays. Give autotuners fewer configurations, or cache their choice (cache_results=True).",
    compilers.JAX: "Use JAX's persistent cache: set JAX_COMPILATION_CACHE_DIR, and "
    "jax_persistent_cache_min_compile_time_secs=0 where many programs are small.",
    compilers.CUPY: "Use a cache that outlives the run: put CUPY_CACHE_DIR on persistent storage.",
    compilers.NUMBA: "Use cache=True in numba's jit decorators, with NUMBA_CACHE_DIR on a disk "
    "that stays.",
    compilers.EXTENSION: "Use a build folder that outlives the run (TORCH_EXTENSIONS_DIR), or "
    "build the extension when it is installed.",
    compilers.AUTOTUNER: "Use the autotuner's cache, so that its choice outlives the run. Leave "
    "sizes that vary out of the key of triton.autotune: each new value is tuned anew.",
    compilers.CUDNN: "Check whether input sizes change: cudnn.benchmark tries its algorithms once "
    "per size. The last batch of an epoch is often smaller (drop_last=True). A longer run pays "
    "this once.",
    compilers.UNKNOWN: "Use the compiler's cache, so that its result outlives the run.",
}
_RECOMPILATION = {
    compilers.TORCH_COMPILE: "Look at why it recompiles with TORCH_LOGS=recompiles. For sizes that "
    "vary, use torch.compile(dynamic=True) or torch._dynamo.mark_dynamic, or pad them to a few "
    "sizes; keep Python numbers that change out of the compiled function.",
    compilers.JAX: "Look at why it recompiles with JAX_LOG_COMPILES=1. Pad sizes that vary to a "
    "few sizes, and pass Python numbers that change as arrays, not as static arguments.",
    compilers.TRITON: "Use do_not_specialize for integer arguments that change, and fewer "
    "tl.constexpr arguments whose value varies.",
}
_RECOMPILATION_OF_ALL = (
    "Look at what changes from pass to pass (sizes, types, constants): each new combination is "
    "compiled again. Pad sizes to a few, or compile them all before the loop."
)


def compilation_findings(trace: Trace, every: Phases) -> tuple[Finding, ...]:
    """The findings for the process that compiled longest; others usually compile the same."""
    windows = compilation(trace)
    if not len(windows):
        return ()
    duration = windows.end_ns - windows.start_ns
    by_process = np.bincount(windows.process, duration, minlength=max(working_processes(trace)) + 1)
    process = int(np.argmax(by_process))
    own = windows.process == process
    again = own & recompilation(trace)
    findings = (
        _recompilation(trace, process, again),
        _once(trace, every, process, own & ~again),
    )
    return tuple(finding for finding in findings if finding is not None)


def replay_finding(trace: Trace) -> Iterator[Finding]:
    """Passes launched kernel by kernel after warm-up that a graph of the program replays faster."""
    lost = [(_slower_ns(each), each) for each in replayed_sequences(trace)]
    excess_ns, worst = max(lost, key=lambda pair: pair[0], default=(0, None))
    if worst is None:
        return
    device = int(operations(trace).device[worst.launched[0]])
    span_ns = steady_spans_ns(trace).get(device, 0)
    severity = severity_of(excess_ns, span_ns)
    if severity is None:
        return
    longest = int(np.argmax(np.where(worst.steady, worst.launched_ns, -1)))
    start_ns = int(operations(trace).start_ns[worst.launched[longest]])
    yield Finding(
        severity,
        "{kernels:kernel} take {pass_ns} where the CPU launches each ({passes:time} after "
        "warm-up), and {replay_ns} where a CUDA graph replays them.",
        "Replay the graph there as well, if the sizes are the same.",
        min(excess_ns, span_ns),
        gpu_subject(trace, device),
        Evidence(
            {
                "kernels": worst.kernels,
                "pass_ns": int(np.median(worst.launched_ns[worst.steady])),
                "passes": int(worst.steady.sum()),
                "replay_ns": worst.replay_ns,
            },
            "replays",
            {"kernels": worst.kernels, "replays": worst.replays},
            start_ns,
            start_ns + int(worst.launched_ns[longest]),
        ),
        share_pct(min(excess_ns, span_ns), span_ns),
        CAUSE_NAMES[LAUNCH_LATE],
        work=LostTime(device, _passes(trace, worst)),
    )


def _passes(trace: Trace, passes: Replayed) -> Intervals:
    """The time of the steady passes that are launched kernel by kernel."""
    start_ns = operations(trace).start_ns[passes.launched[passes.steady]]
    return intervals.union(start_ns, start_ns + passes.launched_ns[passes.steady])


def _slower_ns(passes: Replayed) -> int:
    """Time of the passes after warm-up beyond that of as many replays."""
    return int(np.maximum(passes.launched_ns[passes.steady] - passes.replay_ns, 0).sum())


def _once(trace: Trace, every: Phases, process: int, chosen: Mask) -> Finding | None:
    if not chosen.any():
        return None
    whole_ns, since = _working(every, process)
    compile_ns, tool = _total(trace, chosen)
    fraction = compile_ns / max(whole_ns, 1)
    if fraction < LEAST:
        return None
    bounds: tuple[tuple[float, Severity], ...] = ((HIGH, "high"), (MEDIUM, "medium"), (LOW, "low"))
    severity: Severity = next((name for least, name in bounds if fraction >= least), "info")
    severity = "info" if tool == compilers.CUDNN else severity
    template = "{compiler} took" if tool == compilers.CUDNN else "Compilation by {compiler} took"
    template += f" {{compile_ns}}, {{compile_pct}} of the {{working_ns}} {since}"
    template += " ({stretches:stretch|stretches})."
    template += " The GPU was mostly idle then." if _gpus_idle(trace, chosen) else ""
    values: dict[str, Cell] = {
        "compile_pct": min(100.0 * fraction, 100.0),
        "working_ns": whole_ns,
    }
    remedy = _REMEDIES[tool]
    if tool == compilers.UNKNOWN and not recording_options(trace).python_samples:
        how = by_recorder(
            trace,
            "traceview record --python-samples",
            "torch.profiler.profile(with_stack=True)",
            "traceview record --python-samples",
        )
        remedy += f" Record with {how} to see which compiler this is."
    return _finding(trace, process, chosen, severity, _Wording(template, remedy, values))


def _recompilation(trace: Trace, process: int, chosen: Mask) -> Finding | None:
    if not chosen.any():
        return None
    windows, end = compilation(trace), last_work_ns(trace, process)
    begin = int(windows.start_ns[chosen].min())
    # What is still being compiled when the recording ends delays no work.
    compile_ns = int((np.minimum(windows.end_ns, end) - windows.start_ns)[chosen].sum())
    severity = severity_of(compile_ns, end - begin)
    if severity is None:
        return None
    share, tool = share_pct(compile_ns, end - begin), _total(trace, chosen)[1]
    values: dict[str, Cell] = {"compile_ns": compile_ns, "compile_pct": share}
    times = "{stretches:time}"
    if hit := _steps_hit(trace, process, windows.start_ns[chosen]):
        times, values = "in {steps_hit} of {steps:step}", {**values, **hit}
    template = (
        f"Code was compiled again inside the loop by {{compiler}}: {times}, {{compile_ns}} in "
        "all, {compile_pct} of the loop."
    )
    call = compile_call(trace, process, chosen)
    if call:
        where, named = call.place()
        template, values = f"{template} The call is{where}.", {**values, **named}
    wording = _Wording(template, _RECOMPILATION.get(tool, _RECOMPILATION_OF_ALL), values)
    finding = _finding(trace, process, chosen, severity, wording, share)
    subject = call.subject() if call else finding.subject
    return replace(finding, subject=subject, time_at_stake_ns=compile_ns)


def _steps_hit(trace: Trace, process: int, start: Integers) -> dict[str, Cell]:
    """The steps of a process in which something began, and all of them; empty without steps."""
    all_steps = steps(trace)
    own = np.flatnonzero(all_steps.process == process)
    if not len(own):
        return {}
    own = own[all_steps.series[own] == np.bincount(all_steps.series[own]).argmax()]
    at = np.searchsorted(all_steps.cpu_start_ns[own], start, side="right") - 1
    inside = (at >= 0) & (start < all_steps.cpu_end_ns[own[at]])
    return {"steps_hit": len(groups.different(at[inside])), "steps": len(own)}


def _gpus_idle(trace: Trace, chosen: Mask) -> bool:
    """Whether recorded GPU work fills less than half of some windows."""
    ops, windows = operations(trace), compilation(trace)
    covered = intervals.union(windows.start_ns[chosen], windows.end_ns[chosen])
    work = intervals.union(ops.start_ns, ops.end_ns)
    return len(ops) > 0 and 2 * intervals.intersection(covered, work).total() < covered.total()


def _total(trace: Trace, chosen: Mask) -> tuple[int, int]:
    """Time of some windows, and the tool with most of it."""
    windows = compilation(trace)
    duration = (windows.end_ns - windows.start_ns)[chosen]
    tool = np.bincount(windows.tool[chosen], duration, minlength=len(compilers.TOOLS))
    return int(duration.sum()), int(np.argmax(tool))


def _working(every: Phases, process: int) -> tuple[int, str]:
    """Time of a process from its first phase but start-up to its shut-down, and since when.

    Start-up that goes on after a first compilation counts: the program may not have got further.
    """
    own = every.process == process
    begun = every.start_ns[own & (every.phase != Phase.START_UP)]
    ended = every.end_ns[own & (every.phase != Phase.SHUT_DOWN)]
    if not len(begun) or not len(ended):
        return 0, ""
    start_up = every.start_ns[own & (every.phase == Phase.START_UP)]
    goes_on = bool((start_up > begun.min()).any())
    since = "from the first compilation on" if goes_on else "after start-up"
    return int(ended.max() - begun.min()), since


class _Wording(NamedTuple):
    """A message as a template, its remedy, and its own values."""

    template: str
    remedy: str
    values: dict[str, Cell]


def _finding(
    trace: Trace,
    process: int,
    chosen: Mask,
    severity: Severity,
    wording: _Wording,
    share: float | None = None,
) -> Finding:
    """A finding about some windows of one process; its window is the longest of them."""
    template, remedy, values = wording
    windows = compilation(trace)
    compile_ns, tool = _total(trace, chosen)
    duration = np.where(chosen, windows.end_ns - windows.start_ns, -1)
    longest = int(np.argmax(duration))
    number = int(trace.processes["process_id"][process])
    if len(groups.different(windows.process)) > 1:
        template = template.replace("{compiler}", "{compiler} in process {process}")
    return Finding(
        severity,
        template,
        remedy,
        compile_ns,
        Subject("process", str(trace.processes.texts("name")[process] or number)),
        Evidence(
            {
                "compiler": compilers.TOOLS[tool],
                "compile_ns": compile_ns,
                "stretches": int(chosen.sum()),
                "process": str(number),
                **values,
            },
            "totals",
            {"process_id": number, "phase": Phase.COMPILATION.label},
            int(windows.start_ns[longest]),
            int(windows.end_ns[longest]),
        ),
        share,
    )

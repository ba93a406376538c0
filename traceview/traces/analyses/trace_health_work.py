"""The check whether GPU work was recorded, and what the calls of the CPU say if not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceview.base import intervals
from traceview.base.tables import Mask
from traceview.base.units import Value
from traceview.base.vocabulary.activities import ACTIVITIES
from traceview.traces.analyses.base import EXPORT_AGAIN
from traceview.traces.analyses.gpu_idle.beside_work import place
from traceview.traces.analyses.gpu_idle.gap_evidence import path_of_calls
from traceview.traces.analyses.gpu_idle.line_sites import LEAST_SAMPLES
from traceview.traces.analyses.trace_health_checks import UPDATE_NSYS, Check, without_cuda
from traceview.traces.analyses.wording import (
    AS_NODES,
    by_recorder,
    fewer_launches,
    of_torch,
    on_amd,
)
from traceview.traces.facts import launches, operations
from traceview.traces.facts.cpu_work import cpu_work, waits_for_gpu
from traceview.traces.facts.idle.first_calls import is_start_up_alone, runs_kernels
from traceview.traces.facts.idle.stack_sites import stack_sites, unwound_samples
from traceview.traces.facts.operations import CallKind, api_calls
from traceview.traces.facts.ranges.ranges import range_tree
from traceview.traces.trace import Trace, schema
from traceview.traces.trace.nsys import export_info, program_output


def gpu_work(trace: Trace) -> list[Check]:
    """Whether GPU work was recorded, and why not."""
    launched = bool((operations.call_kinds(trace) == CallKind.LAUNCH).any())
    if printed := _printed(trace, launched):
        return [printed]
    return [*_ended(trace), _seen(trace, launched)]


def _ended(trace: Trace) -> Iterator[Check]:
    """The error with which a program ended that had run kernels, or that its result is wrong."""
    if len(trace.recorded("kernels")) and (error := trace.run.get(program_output.PROGRAM_ERROR)):
        remedy, values = _after_error(error), {"printed": error}
        yield Check("program", "blind", _ENDED, remedy, values, all_in_doubt=True)
    # Calls that failed are why a result is wrong.
    wrong = trace.run.get(program_output.WRONG_RESULT)
    if wrong and export_info.CALL_ERROR not in trace.run:
        yield Check("program", "blind", _WRONG, _MEND, {"printed": wrong}, all_in_doubt=True)


def _seen(trace: Trace, launched: bool) -> Check:
    """Whether the work of the GPU was recorded, of a program that ran."""
    ops = operations.operations(trace)
    if is_cut_off(trace):
        return Check("GPU work", "blind", _CUT_OFF, _WHOLE, all_in_doubt=True)
    if "kernels" in trace.unread:
        values: dict[str, Value] = {"reason": trace.unread["kernels"]}
        template = "The kernels were not read, so GPU time is unknown: {reason}."
        remedy = f"{EXPORT_AGAIN[0].upper()}{EXPORT_AGAIN[1:]}"
        return Check("GPU work", "blind", template, remedy, values, all_in_doubt=True)
    seen = np.isin(ops.kind, [operations.Kind.KERNEL, operations.Kind.GRAPH]).any()
    if launched and not seen:
        return _lost(trace, bool(len(ops)))
    if accelerator := other_accelerator(trace):
        return Check("GPU work", "warning", _OTHER, _ITS_TOOLS, {"accelerator": accelerator})
    if without_gpu(trace) or "kernels" not in trace.tables:
        return _none(trace)
    if without_cuda(trace):
        return _unseen(trace)
    if not len(ops):
        return Check("GPU work", "note", "CUDA was traced and the GPU did nothing.")
    return _counted(trace, len(ops))


def _printed(trace: Trace, launched: bool) -> Check | None:
    """The error of a program that did not start, or launched no kernel, as printed or returned."""
    if error := trace.run.get(program_output.LOADER_ERROR):
        remedy = _NEWER_NSYS if _OF_NSYS.search(error) else _RUN_ALONE
        return Check("GPU work", "blind", _NOT_BEGUN, remedy, {"error": error})
    names = (program_output.PROGRAM_ERROR, export_info.CALL_ERROR)
    error = next((trace.run[name] for name in names if name in trace.run), None)
    if not error or launched:
        return None
    text, name = (_PRINTED, "printed") if names[0] in trace.run else (_FAILED, "error")
    return Check("GPU work", "blind", text, _after_error(error), {name: error}, all_in_doubt=True)


def _after_error(error: str) -> str:
    return next(remedy for sign, remedy in _AFTER if sign.search(error))


def _lost(trace: Trace, others: bool) -> Check:
    """Of launches without a record of their kernels; `others`: copies and memsets have one."""
    lost = f"Work was launched and none of it was recorded{_UNKNOWN}."
    if not others and "kernels" not in trace.tables:
        lost = f"Work was launched, but no table of kernels was read{_UNKNOWN}."
    template, values = _on_cpu(trace, ran=not others and export_info.CALL_ERROR not in trace.run)
    cupti = _SEE_CUPTI if _timed_by_events(trace) else f"{_SEE_CUPTI}{_IF_OFF}"
    remedy = by_recorder(trace, _SEE_GPU, cupti, _SEE_GPU)
    remedy = _CHECK_LAUNCHES if others else remedy
    if export_info.ran_on_wsl(trace.capture) and not others:
        lost, remedy = f"{lost}{_ON_WSL}", _OFF_WSL
        values |= {"nsys": trace.recorder_version, "system": trace.capture[export_info.SYSTEM]}
    if error := trace.run.get(export_info.CALL_ERROR):
        lost, remedy = f"No kernel ran: calls failed with {error}.", _after_error(error)
    if launches.loses_graphs(trace):
        lost = "CUDA graphs were launched without a record of their kernels: GPU time is unknown."
        remedy = AS_NODES
    elif (waits := waits_for_gpu(trace)) and not error:
        # How long single kernels take is unknown, not that they take the time.
        lost = lost.replace(_UNKNOWN, "") + _WAITS
        values |= {"waited_pct": waits.pct, "launched_ns": waits.span_ns, "wait": waits.call}
    return Check("GPU work", "blind", f"{lost}{template}", remedy, values, all_in_doubt=True)


def _none(trace: Trace) -> Check:
    """Of a recording without GPU work, which operators may show to have been done."""
    names, remedy = trace.recorded("ranges").texts("name").values, how_to_record(trace)
    if ran := next((str(each) for each in names if _OF_GPUS.match(str(each))), ""):
        values = {"operator": ran}
        return Check("GPU work", "blind", _UNRECORDED, remedy, values, all_in_doubt=True)
    why = _NO_GPU if without_gpu(trace) else "None was recorded."
    return Check("GPU work", "note", why, remedy)


def _unseen(trace: Trace) -> Check:
    """Of a recording for which nsys saw no call of CUDA."""
    driver = export_info.outdated_by(trace.capture, trace.recorder_version)
    if driver is None:
        seen = _sampled(trace)
        if not seen:
            return Check("GPU work", "warning", _NO_CUDA, _SEE_CUDA)
        return Check("GPU work", "blind", _HIDDEN, _SEE_CALLS, seen, all_in_doubt=True)
    # The recorder of GPU work starts in a process that uses CUDA, at a cost that nsys records.
    used = len(trace.recorded("overheads")) > 0
    values: dict[str, Value] = {"driver": driver, "nsys": trace.recorder_version}
    return Check("GPU work", "blind", _OLD_NSYS, UPDATE_NSYS, values, all_in_doubt=used)


def _sampled(trace: Trace) -> dict[str, Value]:
    """Samples in CUDA's driver, of a program whose calls were not seen, and where most others are.

    Empty for a program that they do not show to use CUDA.
    """
    frames, stacks = trace.recorded("native_frames"), trace.recorded("native_samples")["stack"]
    of_cuda = frames.texts("module").matching(_DRIVER.search)
    count, every = int(np.isin(stacks, frames["stack"][of_cuda]).sum()), unwound_samples(trace)
    if count < LEAST_SAMPLES:
        return {}
    own = every.site[stack_sites(trace).number[every.site] >= 0]
    _, words, figures = place(trace, own) if 2 * len(own) > len(every.site) else (None, {}, {})
    return {"cuda_samples": count, "samples": len(stacks), **words, **figures}


def _counted(trace: Trace, operations: int) -> Check:
    kernels = len(trace.kernels)
    counts: dict[str, Value] = {"kernels": kernels, "others": operations - kernels}
    if not runs_kernels(trace) and is_start_up_alone(trace):
        return Check("GPU work", "warning", _NO_KERNEL, _SEE_OUTPUT, counts)
    text = "{kernels:kernel}, {others:other operation}"
    return Check("GPU work", "ok", text, values=counts)


_NO_GPU = "None was recorded: PyTorch found no GPU, or was profiled without ProfilerActivity.CUDA."
_UNRECORDED = "{operator} runs on a GPU only, and no GPU work was recorded, so GPU time is unknown."
_OF_GPUS = re.compile(r"aten::_?(cudnn|miopen)_(conv|batch_norm|rnn|ctc)")
"""Operators without a kernel for CPUs."""
_CUT_OFF = "The file ends before any GPU work, so GPU time is unknown."
_WHOLE = "Copy the file again, or record again: its end is missing."
_NOT_BEGUN = "The program did not start, so nothing was recorded: {error}."
_OF_NSYS = re.compile("(?i)ToolsInjection|nsys|nsight")
_NEWER_NSYS = (
    "Record with a newer nsys: this one loads a library into the program that does not fit this "
    "system's C library."
)
_RUN_ALONE = (
    "Run the program without the recorder: a library that it needs is missing, or does not fit."
)
_ENDED = "The program ended with an error, so only what came before was recorded: {printed}"
_WRONG = "The program printed: {printed}"
_MEND = "Mend its result first: how long a wrong computation takes says little of the right one."
_PRINTED = "No kernel was launched, and the program printed an error: {printed}"
_FAILED = "No kernel was launched: calls failed with {error}."
_FREE = (
    "Free GPU memory (nvidia-smi shows what holds it), or make the problem smaller, and record "
    "again."
)
_NO_KERNEL = (
    "No kernel was launched: {others:copy or memset|copies and memsets} and their start are all "
    "that was recorded."
)
_SEE_OUTPUT = (
    "Record a part of the program that computes. If this one should, look for an error in its "
    "output: it may have ended early."
)
_OTHER = "The work of an accelerator that is no GPU ({accelerator}) is not read, only CPU time."
_ITS_TOOLS = "Read it with that accelerator's own tools; reports here are of GPUs."
_NO_CUDA = "nsys recorded no CUDA call: the program made none, or nsys did not see them."
_HIDDEN = (
    "nsys recorded no CUDA call, though {cuda_samples} of {samples:sample} of the CPU are in "
    "CUDA's driver: what the program did on the GPU is unknown.[ Of its own code, {function_pct} "
    "of the samples are in {function} ({module}).]"
)
_DRIVER = re.compile(r"(^|/)(libcuda\.so|nvcuda)")
_OLD_NSYS = (
    "nsys {nsys} recorded no CUDA call: the driver (CUDA {driver}) is newer, so what the program "
    "did on the GPU is unknown."
)
_SEE_CALLS = (
    "Check that nsys is as new as the driver, and that it supports this GPU and WSL, where the "
    "program runs there (traceview doctor), and record again."
)
_SEE_CUDA = (
    "If the program uses a GPU, check that nsys is as new as the driver and that the recorded "
    "process, or a child of it, does the GPU work. traceview doctor checks this machine."
)


_AFTER = tuple(
    (re.compile(sign), remedy)
    for sign, remedy in (
        (f"(?i)out[ _]of[ _]memory|{export_info.NO_MEMORY}", _FREE),
        (
            "(?i)compiled with: -gpu|Rebuild this file|no kernel image",
            "Build for this GPU: nvc -gpu=ccnative, or a list such as -gpu=cc75,cc80; "
            "nvcc -arch=native.",
        ),
        (
            "cudaError(InvalidDeviceFunction|NoKernelImage|UnsupportedPtx)",
            "Build for this GPU (nvcc -arch=native), or update the driver where the toolkit is "
            "newer. Check the error of each launch (cudaGetLastError).",
        ),
        (
            "cudaError(InvalidConfiguration|LaunchOutOfResources)",
            "Launch blocks that fit: 1,024 threads at most, with the registers and shared memory "
            "that this GPU has. Check the error of each launch (cudaGetLastError).",
        ),
        ("", "Fix it, and record again."),
    )
)
_CHECK_LAUNCHES = (
    "Check the error of each launch (cudaGetLastError): copies were recorded and kernels were not, "
    "as where a kernel was built for another GPU."
)
_LEAST_ALLOCATIONS, _MUCH_ALLOCATING = 20, 0.1
"""A loop allocates in each pass, and a tenth of the time: 48 % in a program that allocates and
frees three arrays around each launch (a public recording)."""
_ALLOCATES = (
    " Between launches it allocates and frees for {allocating_ns} ({allocations:call}): allocate "
    "before the loop, and use that memory again."
)
_SEE_GPU = (
    "Run traceview doctor on the machine that recorded this: with a driver newer than nsys, on WSL "
    "and on virtual GPUs nsys sees the calls of CUDA and no GPU work. Elsewhere, record with "
    "--trace=cuda,nvtx."
)
_UNKNOWN = ", so GPU time is unknown"
_WAITS = (
    " From the first launch on, the CPU waits for the GPU in {waited_pct} of {launched_ns} (mostly "
    "in {wait}): the GPU is busy then."
)
_ON_WSL = " It was recorded on WSL ({system})[, by nsys {nsys}]."
_OFF_WSL = (
    "Record on native Linux, or update nsys and the driver of Windows: on WSL nsys may see the "
    "calls of CUDA and no GPU work."
)


_SEE_CUPTI = (
    "Look for an error of CUPTI in the output of the program: a missing permission, another "
    "profiler on this GPU, or a driver that is too old for WSL."
)
# torch records the calls with either activity.
_IF_OFF = " Without ProfilerActivity.CUDA in activities, calls are all that is recorded."
_EVENT = "cudaEventRecord"


def _timed_by_events(trace: Trace) -> bool:
    """Whether torch put two events around each operator: CUDA was asked for, and CUPTI failed."""
    calls = int(trace.recorded("api_calls").texts("name").isin([_EVENT]).sum())
    return calls >= 2 * len(trace.recorded("ranges")) > 0


def _on_cpu(trace: Trace, *, ran: bool) -> tuple[str, dict[str, Value]]:
    """What a program can do about its CPU work, whatever the GPU did.

    `ran` is False where its kernels may have failed: the GPU is done at once then.
    """
    calls, template = api_calls(trace), ""
    values: dict[str, Value] = {}
    launched = calls.start_ns[calls.does == CallKind.LAUNCH]
    # Those before the first launch are of the start.
    repeated = (calls.does == CallKind.ALLOCATE) & (calls.start_ns > launched.min())
    allocating_ns = intervals.covered(calls, repeated).total()
    often = np.count_nonzero(repeated) >= max(len(launched), _LEAST_ALLOCATIONS)
    gives_back = _gives_back(trace, repeated)
    span_ns = int(calls.end_ns.max() - calls.start_ns.min())
    if (often or gives_back) and allocating_ns >= _MUCH_ALLOCATING * span_ns:
        template += _GIVES_BACK if gives_back else _ALLOCATES
        values |= {"allocating_ns": allocating_ns, "allocations": int(np.count_nonzero(repeated))}
        values |= gives_back
    if work := cpu_work(trace):
        much = {name: ns for name, ns in work.own_ns.items() if ns >= _MUCH_WORK * work.span_ns}
        for name in sorted(filter(_instead, much), key=lambda each: -much[each])[:1]:
            template += _instead(name)
            values |= {"work": name, "work_ns": much[name], "number": work.number[name]}
    if ran and (ahead := _sets_pace(trace)):
        fewer = f": {fewer_launches(trace)}" if not template else ""
        template += f"{_PACE}{fewer}."
        values |= ahead
    return template, values


def _gives_back(trace: Trace, repeated: Mask) -> dict[str, Value]:
    """Where torch frees most outside of its operators, which its allocator never does by itself.

    Empty where it does not: a call that finds no room frees within the operator.
    """
    calls = trace.recorded("api_calls")
    rows = np.flatnonzero(repeated & calls.texts("name").matching(_FREES.match))
    if not of_torch(trace) or not len(rows):
        return {}
    path, took_ns = path_of_calls(trace, rows), calls.duration_ns[rows]
    paths = {each: range_tree(trace).paths[each] if each >= 0 else "" for each in path.tolist()}
    outside = np.array(["aten::" not in paths[each] for each in path.tolist()])
    if 2 * took_ns[outside].sum() < took_ns.sum():
        return {}
    longest = int(np.argmax(np.where(outside, took_ns, -1)))
    return {
        "freeing_ns": int(took_ns[outside].sum()),
        "free": str(calls.texts("name")[int(rows[longest])]),
        "longest_ns": int(took_ns[longest]),
        "within": paths[int(path[longest])] or None,
    }


def _sets_pace(trace: Trace) -> dict[str, Value]:
    """What shows that the GPU keeps up with the CPU: it is done soon after the last launch.

    Empty where the CPU waits for it for longer, before or after that launch, and where nothing
    waits for it behind.
    """
    calls = api_calls(trace)
    launches = np.flatnonzero(calls.does == CallKind.LAUNCH)
    begin, last = int(calls.start_ns[launches].min()), int(calls.end_ns[launches].max())
    span_ns = last - begin
    waits = np.isin(calls.does, (CallKind.SYNCHRONIZE, CallKind.COPY)) & (calls.end_ns > begin)
    behind = waits & (calls.start_ns >= last)
    most_ns = _KEEPS_UP * span_ns
    if len(launches) < _LEAST_LAUNCHES or not behind.any():
        return {}
    if intervals.covered(calls, waits).total() > most_ns:
        return {}
    tail_ns = int(calls.end_ns[behind].max()) - last
    if tail_ns > most_ns:
        return {}
    return {"tail_ns": tail_ns, "launches": len(launches), "launching_ns": span_ns}


def exchange_on_cpu(trace: Trace) -> tuple[str, str, dict[str, Value]] | None:
    """What to say of a run without GPU work that exchanges tensors of the CPU by gloo."""
    ranges, work = trace.recorded("ranges"), cpu_work(trace)
    rows = np.flatnonzero(ranges.texts("name").matching(_GLOO.match))
    if not len(rows) or not work or "kernels" in trace.tables:
        return None
    took_ns = intervals.covered(ranges, rows).length
    if took_ns.sum() < _MUCH_WORK * work.span_ns:
        return None
    values: dict[str, Value] = {"works": len(rows), "exchanging_ns": int(took_ns.sum())}
    later_ns = int(np.median(took_ns[1:])) if len(took_ns) > 1 else 0
    if later_ns and took_ns[0] >= _COLD_TIMES * later_ns:
        values |= {"first_ns": int(took_ns[0]), "later_ns": later_ns}
    return _ON_GLOO, _BY_NCCL, values


def _instead(name: str) -> str:
    """What to do about the CPU's time in an operator or a call of the OS; empty if unknown."""
    if _FILLS.match(name):
        return _ON_DEVICE
    waits = (each for each in ACTIVITIES if each.os_calls and re.fullmatch(each.os_calls, name))
    return next((f"{_IN_CALLS}{each.action}" for each in waits), "")


_FILLS = re.compile(r"aten::(normal|uniform|random|bernoulli|exponential|fill|zero|arange)_?$")
_ON_DEVICE = (
    " The CPU fills tensors for {work_ns} ({work}): if they are copied to the GPU, create them on "
    "it (device='cuda')."
)
_IN_CALLS = " The CPU spends {work_ns} in {work} ({number:call}). "
_FREES = re.compile(r"(cudaFree|hipFree|cuMemFree(_v2)?)$")
_GIVES_BACK = (
    " {allocations:call} that allocate and free GPU memory take {allocating_ns}, {freeing_ns} of "
    "it {free} outside of operators, as torch.cuda.empty_cache() calls it[ ({longest_ns} at once "
    "in {within})]: leave that out, so that the allocator keeps its memory. {free} also waits for "
    "kernels, so less than that is won."
)
_PACE = (
    " The GPU is done {tail_ns} after the last of {launches:launch|launches} in {launching_ns}, so "
    "the CPU sets the pace"
)
_KEEPS_UP, _LEAST_LAUNCHES = 0.1, 10
"""Waits for the GPU take at most this part of the time: 1 % in two public programs that it keeps
up with, 19 % in one with a product of 9 ms at its end."""
_GLOO = re.compile("gloo:")
_COLD_TIMES = 3
_ON_GLOO = (
    "No GPU work was recorded: tensors are exchanged on the CPU, by gloo ({works:send, receive or "
    "collective|sends, receives and collectives} in {exchanging_ns}).[ The first exchange takes "
    "{first_ns}, later ones {later_ns} (median): it connects, or waits for a peer.]"
)
_BY_NCCL = (
    "Record more rounds, after a first one. Tensors on GPUs are exchanged there, by NCCL "
    "(backend='nccl'), and one collective takes less than sends and receives one by one."
)
_MUCH_WORK = 0.25
"""Of the time of the CPU: tensors filled on it take more than half of it in a public recording, and
reads of a file 35 % of another."""


def is_cut_off(trace: Trace) -> bool:
    """Whether the file ends before any GPU work."""
    return "truncated" in trace.run and not len(operations.operations(trace))


def without_gpu(trace: Trace) -> bool:
    """Whether torch.profiler saw neither GPU nor CUDA, which is not a fault of a CPU program."""
    return trace.recorder == schema.TORCH_PROFILER and not (
        len(trace.devices) or trace.tables.keys() & {"kernels", "copies", "sets", "api_calls"}
    )


def other_accelerator(trace: Trace) -> str:
    """The accelerator that torch.profiler recorded beside the CPU, where that is no GPU."""
    return "" if "kernels" in trace.tables or on_amd(trace) else trace.run.get("gpu_vendor", "")


def how_to_record(trace: Trace) -> str:
    """A remedy that records GPU work and the calls that launch it."""
    return by_recorder(
        trace,
        "Record with traceview record SCRIPT, or nsys profile --trace=cuda,nvtx",
        "Record with torch.profiler.profile(activities=[ProfilerActivity.CPU, "
        "ProfilerActivity.CUDA])",
        "Record with traceview record SCRIPT, on a machine with a GPU",
    )

"""Remedies for idle time by cause, as edits of the replayed run and in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import Edit
from traceview.base.tables import Array, Integers, Mask, RowNumbers
from traceview.base.vocabulary import activities, causes
from traceview.traces.analyses import communication_findings, wording
from traceview.traces.analyses.gpu_idle import cpu_tasks, late_parts, line_sites
from traceview.traces.facts import forecast
from traceview.traces.facts.collectives import transfers
from traceview.traces.facts.copies import uses_managed_memory
from traceview.traces.facts.dependencies import replay
from traceview.traces.facts.dependencies.blame import IdlePart
from traceview.traces.facts.dependencies.graph import Edge
from traceview.traces.facts.idle import cpu_activity, gap_bounds, gaps, lines
from traceview.traces.facts.idle.causes import idle_graph, idle_parts
from traceview.traces.facts.kernel_classes import framework, terms
from traceview.traces.facts.launches import cuda_graphs, waits
from traceview.traces.facts.operations import POOLS, CallKind, Kind, api_calls, operations
from traceview.traces.facts.ranges.xla_loops import in_xla_loops
from traceview.traces.facts.round_trips import between_copies
from traceview.traces.facts.samples import leaves_at, leaves_in, stacks_through
from traceview.traces.facts.steps.steps import pace, step_of_operations, steps, warm_up_end_ns
from traceview.traces.trace import Trace, fact, schema

# Remedies of idle time as edits of the replayed run.
#
# Each function returns an edit for the forecast's graph, or None where nothing in the run is to
# be changed. `rows` are rows of gaps: parts of idle gaps of one cause.


def of_cause(trace: Trace, cause: int, rows: Array) -> Edit | None:
    """The remedy for idle time of a cause, as far as the cause alone says it."""
    if cause == causes.LAUNCH_LATE:
        return launch_at_once(trace, rows)
    if cause == causes.SYNC_DRAIN:
        return remove_waits(trace, rows)
    if cause in (causes.ALLOCATION, causes.MODULE_LOAD, causes.JIT_COMPILE):
        return remove_calls(trace, _calls_in(trace, rows))
    if cause == causes.GRAPH_LAUNCH:
        calls = _calls_in(trace, rows)
        return remove_calls(trace, calls[api_calls(trace).does[calls] == CallKind.GRAPH])
    return remove_pauses(trace, rows) if cause == causes.GARBAGE_COLLECTION else None


def launch_at_once(trace: Trace, rows: Array) -> Edit | None:
    """All work of a step is launched by one call, as by a CUDA graph; of the run without steps.

    Work that was launched after a wait still is: what the CPU read there may decide on it. So is
    work that was launched after an allocation: its memory was not there before.
    """
    late = gaps.gaps(trace).after[rows]
    if not (operations(trace).call[late] >= 0).any():
        return None
    launched, group = _launched_together(trace, late)
    if 1 < len(launched) == len(groups.different(group)):
        # Each is alone in its step, or between waits: to launch less often is to join these.
        return None

    def edit(changed: replay.Changed) -> None:
        item = forecast.model(trace).item_of_operation[launched]
        changed.launch_at_once(item[item >= 0], group[item >= 0])

    return edit


def _launched_together(trace: Trace, late: Array) -> tuple[Array, Array]:
    """Operations that one call could launch, and the number of the call.

    They are of one step, or between the same two, and of one thread and stream, no wait or
    allocation comes between their launches, and some of each group are among `late`. Copies stay
    as they are, but for single numbers: the host memory of most must be ready. So do groups with an
    accident, which has an edit of its own, if there are others.
    """
    ops, calls, every = operations(trace), api_calls(trace), waits(trace)
    numbers = _python_numbers(trace)
    launched = np.flatnonzero((ops.call >= 0) & ((ops.kind != Kind.COPY) | numbers))
    call = ops.call[launched]
    thread, issued = calls.thread[call], calls.start_ns[call]
    # Other threads of JAX copy the numbers for the one that calls its operations.
    constant = numbers[launched]
    for rows in groups.rows_of(ops.process[launched]).values() if constant.any() else ():
        main = np.bincount(thread[rows[~constant[rows]]], minlength=1).argmax()
        thread[rows[constant[rows]]] = main
    waited = np.zeros(len(launched), np.int64)
    blocking = np.isin(every.does, (CallKind.SYNCHRONIZE, CallKind.COPY))
    allocates = calls.does == CallKind.ALLOCATE
    for number, own in groups.rows_of(thread).items():
        ends = np.sort(
            np.concatenate(
                [
                    every.end_ns[blocking & (every.thread == number)],
                    calls.end_ns[allocates & (calls.thread == number)],
                ]
            )
        )
        waited[own] = np.searchsorted(ends, issued[own], side="right")
    step, stream = step_of_operations(trace)[launched], ops.stream[launched]
    # Work between steps, such as an optimizer's behind each, comes again with every pass.
    begun = np.searchsorted(np.sort(steps(trace).cpu_start_ns), issued, side="right")
    group = groups.group(step, np.where(step < 0, begun, -1), thread, stream, waited).ids
    is_late = np.zeros(len(ops), bool)
    is_late[late] = True
    chosen = groups.isin(group, group[is_late[launched]])
    is_late[:] = False
    is_late[gaps.gaps(trace).after[line_sites.in_accidents(trace)]] = True
    apart = groups.isin(group, group[is_late[launched]])
    if (chosen & ~apart).any():
        chosen &= ~apart
    return launched[chosen], group[chosen]


@fact
def _python_numbers(trace: Trace) -> Mask:
    """True for the copies to a GPU of single numbers that JAX makes for operations outside jax.jit.

    Within jax.jit, a Python number is a constant of the program.
    """
    ops, result = operations(trace), np.zeros(len(operations(trace)), bool)
    if framework(trace) == "jax":
        copies, rows = trace.recorded("copies"), np.flatnonzero(ops.kind == Kind.COPY)
        number = copies.texts("direction").isin(["H2D"]) & (copies["bytes"] <= _NUMBER_BYTES)
        result[rows] = number[ops.row[rows]]
    return result


_NUMBER_BYTES = 8


def remove_pauses(
    trace: Trace, rows: Array, samples: lines.IdleSamples | None = None
) -> Edit | None:
    """The threads do nothing outside of calls in these idle times.

    With samples, each pause is shorter by the share of its idle time that these stand for. Other
    GPUs that wait in collectives meanwhile wait as much less.
    """
    every = gaps.gaps(trace)
    share = np.ones(len(every))
    if samples is not None:
        share = _shares(trace, samples)
        rows = np.flatnonzero(share > 0)
    call, row = _parts_in(trace, rows, (IdlePart.HOST, IdlePart.WAKE))
    less = share[row]
    if not len(call):
        return None
    waiting, less_ns = _waiting_meanwhile(trace, rows, share)

    def edit(changed: replay.Changed) -> None:
        _shorten_pauses(changed, *_of_calls(trace, call, less))
        item = forecast.model(trace).item_of_operation[waiting]
        changed.shorten(item[item >= 0], less_ns[item >= 0])

    return edit


def _waiting_meanwhile(trace: Trace, rows: Array, share: Array) -> tuple[Array, Integers]:
    """Collectives of other GPUs that wait in these idle times, and how much less without them.

    The graph of a recording does not know that collectives wait for each other.
    """
    every, device = gaps.gaps(trace), gaps.gaps(trace).device[rows]
    moved, waited_ns = transfers(trace), communication_findings.waiting(trace).wait_ns
    less_ns = np.zeros(len(moved), np.int64)
    # A pause makes the next collective late, whether the others have begun it or not.
    by_gpu = np.lexsort((moved.end_ns, moved.device))
    since_ns = moved.start_ns.copy()
    since_ns[by_gpu[1:]] = np.minimum(since_ns[by_gpu[1:]], moved.end_ns[by_gpu[:-1]])
    since_ns[by_gpu[groups.opens(moved.device[by_gpu])]] = 0
    for number in groups.different(device).tolist():
        own = rows[device == number]
        begin = every.end_ns[own] - np.round(share[own] * every.idle_ns[own]).astype(np.int64)
        idle = intervals.union(begin, every.end_ns[own])
        others = np.flatnonzero((moved.device != number) & (waited_ns > 0))
        less_ns[others] += intervals.overlap(idle, since_ns[others], moved.end_ns[others])
    chosen = np.flatnonzero(less_ns)
    return moved.operation[chosen], np.minimum(less_ns, waited_ns)[chosen]


def keep_pauses(trace: Trace, edit: Edit, samples: lines.IdleSamples) -> Edit:
    """The edit, which removes pauses, but for the share of them that these samples stand for."""
    share = _shares(trace, samples)
    call, row = _parts_in(trace, np.flatnonzero(share > 0), (IdlePart.HOST, IdlePart.WAKE))
    less = 1.0 - share[row]

    def edit_others(changed: replay.Changed) -> None:
        before_ns = changed.begin_ns.copy()
        edit(changed)
        item, of_item = _of_calls(trace, call, less)
        edges = changed.graph.begin
        chosen = (changed.begin_ns < before_ns) & groups.isin(edges.of, item)
        changed.begin_ns[chosen] = before_ns[chosen]
        known = groups.isin(item, edges.of[chosen])
        _shorten_pauses(changed, item[known], of_item[known])

    return edit_others


def _shares(trace: Trace, samples: lines.IdleSamples) -> Array:
    """The share of each row of gaps that these samples stand for.

    Some in short gaps stand for all short gaps of a cause (see `spread_idle`): of each of these
    gaps, the share is that of their sum.
    """
    every = gaps.gaps(trace)
    took = np.bincount(samples.gap, samples.time_ns, len(every))
    share = np.minimum(took / np.maximum(every.idle_ns, 1), 1.0)
    kind = groups.group(every.device, every.cause, every.one_time).ids
    over = took > every.idle_ns
    for number in groups.different(kind[over]).tolist():
        alike = kind == number
        alike &= every.idle_ns <= every.idle_ns[alike & over].max()
        share[alike] = min(took[alike].sum() / every.idle_ns[alike].sum(), 1.0)
    return share


def _of_calls(trace: Trace, call: Array, values: Array) -> tuple[Array, Array]:
    """The items of calls that are in the forecast's graph, and the values of these."""
    item = forecast.model(trace).graph.item_of_call[call]
    return item[item >= 0], values[item >= 0]


def _shorten_pauses(changed: replay.Changed, item: Array, less: Array) -> None:
    """The pauses before these calls lose this share of their recorded time.

    So that several remedies, each of a part of one pause, add up.
    """
    edges, share = changed.graph.begin, np.zeros(len(changed.graph))
    np.maximum.at(share, item, less)
    chosen = np.isin(edges.kind, (Edge.THREAD, Edge.HAND_OVER)) & (edges.lag_ns > 0)
    less_ns = np.round(edges.lag_ns[chosen] * share[edges.of[chosen]]).astype(np.int64)
    changed.begin_ns[chosen] = np.where(
        less_ns > 0, np.maximum(changed.begin_ns[chosen] - less_ns, 0), changed.begin_ns[chosen]
    )


def remove_calls(trace: Trace, calls: Array) -> Edit | None:
    """These API calls (rows of api_calls) are not made."""
    if not len(calls):
        return None
    return lambda changed: changed.remove_calls(forecast.model(trace).calls(calls))


def usual_calls(trace: Trace, calls: Array, usual_ns: int) -> Edit | None:
    """These API calls take the usual time."""
    if not len(calls):
        return None

    def edit(changed: replay.Changed) -> None:
        item = forecast.model(trace).calls(calls)
        changed.own_ns[item] = np.minimum(changed.own_ns[item], usual_ns)

    return edit


def remove_waits(trace: Trace, rows: Array) -> Edit | None:
    """The synchronizations that let the GPU run dry wait for nothing."""
    wait = groups.different(gaps.gaps(trace).wait[rows])
    calls = waits(trace).call[wait[wait >= 0]]
    if not len(calls):
        return None
    return lambda changed: changed.wait_for_nothing(forecast.model(trace).calls(calls))


def _calls_in(trace: Trace, rows: Array) -> Array:
    """The API calls that threads were in during these idle times, each once."""
    return groups.different(
        _parts_in(trace, rows, (IdlePart.LAUNCH, IdlePart.CALL, IdlePart.TAIL))[0]
    )


def _parts_in(trace: Trace, rows: Array, kinds: tuple[IdlePart, ...]) -> tuple[Array, Integers]:
    """The API calls of the parts of gaps of these kinds, and the row of gaps that each is in."""
    every, parts, graph = gaps.gaps(trace), idle_parts(trace), idle_graph(trace)
    own = np.flatnonzero(np.isin(parts.kind, kinds) & groups.isin(parts.gap, every.gap[rows]))
    device = gap_bounds.gap_bounds(trace).device[parts.gap[own]]
    row = np.full(len(own), -1, np.int64)
    for number, at in groups.rows_of(device).items():
        known = np.flatnonzero(every.device == number)
        known = known[np.argsort(every.start_ns[known], kind="stable")]
        # A part may lie in two rows: the one in which its middle is counts.
        middle = (parts.start_ns[own[at]] + parts.end_ns[own[at]]) // 2
        row[at] = known[np.searchsorted(every.start_ns[known], middle, side="right") - 1]
    inside = groups.isin(row, rows)
    return graph.call[parts.item[own[inside]]], row[inside]


_OPEN_EARLIER = (
    "Record whole steps with both activities (ProfilerActivity.CPU and CUDA), and call "
    "torch.cuda.synchronize() before the profiler starts."
)
_BREAKS_FIRST = (
    "Remove the graph breaks first (TORCH_LOGS=graph_breaks names them): each part of the graph is "
    "launched apart. Then "
)
_LONGER_GRAPHS = (
    "Put several steps into one CUDA graph, so that there are fewer to launch, and launch the next "
    "one while the last still runs."
)
KEEP_STREAM_FREE = (
    "Keep host functions (cudaLaunchHostFunc, host nodes of graphs) short, or put them on a stream "
    "of their own: the work behind them waits until the CPU has run them."
)
_SHORT_GAPS = "Fuse small kernels, or give each more work."
_SHORTER_IN_GRAPHS = " A CUDA graph shortens the gaps between its kernels."
_SHARED_GPU = (
    "Look for other processes on this GPU (%s): with them it would take turns by time slices, and "
    "launched work wait for its turn. Stop them%s."
)
_SIDE_BY_SIDE = ", or run them beside each other under MPS"
_FEWER_WAITS = "Let the CPU wait less often: work that is launched ahead of it does not start late."
_COALESCE = (
    "Coalesce the sparse matrix once, before the loop (matrix = matrix.coalesce()), or keep it as "
    "CSR: else each product sorts its entries, and the CPU waits for their number."
)
_WITH_GRAPHICS = (
    "The program draws on this GPU, too: graphics work takes turns with CUDA's, and is not in this "
    "recording. Record it as well (--trace=cuda,opengl or vulkan), and draw less often, or on "
    "another GPU."
)
_GRAPHICS = re.compile(r"(cuda|cu|hip)Graphics")
IN_GRAPH = (
    "Time replays without a profiler first: recording each node of a graph lengthens the pauses "
    "between them. What is left is the GPU's own: use fewer, larger nodes."
)
BLOCKED = (
    "Find out what blocks these calls: code that is loaded when a kernel is first launched "
    "(CUDA_MODULE_LOADING=EAGER loads it at the start), a lock that another thread holds in the "
    "driver, or a full launch queue."
)
CALL_BEFORE = "Make this call before or after the loop."
_RETRIES = (
    "Use less memory at the peak (a smaller batch, fewer tensors kept alive), and set "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: PyTorch's allocator found no room, gave its "
    "cached memory back (cudaFree) and asked for new."
)
_GROWS = (
    "Warm up with the largest shapes: PyTorch's allocator keeps what they used, and asks for "
    "more memory only where that is too little. An extension that calls cudaMalloc can use it, too."
)
_KEEP_POOL = (
    "Allocate before the loop, or let the pool keep its memory: by default it gives all of it back "
    "at each synchronization (cudaMemPoolSetAttribute, cudaMemPoolAttrReleaseThreshold)."
)
_DEVICE_MEMORY = re.compile(r"(cudaMalloc|hipMalloc|cuMemAlloc(_v2)?)$")
_FREES = re.compile(r"(cudaFree|hipFree|cuMemFree(_v2)?)$")
NODES = (
    " The graphs were recorded node by node, which makes each graph launch several times as long."
)
LEAST_FRACTION_OF_BUILDS = 0.1
"""Graphs are built or changed in the loop where it does so for this part of their launches."""
_MAKES = re.compile(
    r"(?:torch\.)?(?:rand(?:n|int)?(?:_like)?|normal|bernoulli|multinomial"
    r"|(?:zeros|ones|full)(?:_like)?|arange|linspace|eye)$"
)
_TO_COPY = re.compile(r"\.(cuda|to)\(|torch\.(zeros|ones|empty|full|eye|arange|linspace)\(")
"""Lines that make data to copy it. Random data may stand for what a program loads."""
_OPERATORS = re.compile(r"(?:(?:^|/)aten::\w+)+$")
_BUILDS = re.compile(r"cu(da)?Graph(Instantiate|Upload|ExecUpdate|AddNode|AddKernelNode)")


def action_for(trace: Trace, cause: int) -> str:
    """The remedy for idle time of a cause, in the terms of the program's framework."""
    if cause == causes.UNKNOWN and wording.of_torch(trace):
        return _OPEN_EARLIER
    if cause == causes.GRAPH_LAUNCH and not builds_graphs(trace):
        return _LONGER_GRAPHS
    action = causes.CAUSES[cause].action
    if cause == causes.LAUNCH_LATE and wording.breaks_graphs(trace):
        action = f"{_BREAKS_FIRST}{action[0].lower()}{action[1:]}"
    return action.format_map({name: SLOTS[name](trace) for name in _SLOT.findall(action)})


def held_back_remedy(trace: Trace) -> str:
    """The remedy for launched work that waited for nothing recorded: what can have held it back."""
    migrates = (
        "Page migrations of unified memory, another" if uses_managed_memory(trace) else "Another"
    )
    driver = ", or a driver that sends launches late (on Windows, WSL and virtual GPUs)"
    driver, last = ("", " or") if wording.on_amd(trace) else (driver, ",")
    return (
        f"See in the timeline what comes before this work. {migrates} process on this GPU{last} "
        f"work that was launched before the recording or is missing in it{driver} can hold it back."
    )


def _do_elsewhere(trace: Trace) -> str:
    if len(pace(trace).timed):
        return "take the CPU work between launches out of the loop"
    return "do the CPU work between launches earlier or later"


def of_lone_launches(trace: Trace) -> str:
    """The remedy for late launches that no other could be joined with (see launch_at_once)."""
    action = action_for(trace, causes.LAUNCH_LATE)
    calls = api_calls(trace)
    allocates = (calls.does == CallKind.ALLOCATE) & (calls.start_ns >= warm_up_end_ns(trace))
    if not allocates.any() or wording.reads_between(trace):
        return action
    elsewhere = _do_elsewhere(trace)
    return f"{elsewhere[0].upper()}{elsewhere[1:]}: allocations keep launches from being joined."


_MUCH_PYTHON = 0.1


def how_to_see_lines(trace: Trace) -> str:
    """How to record stacks, where the GPU waited long for Python and there are none; else empty."""
    if trace.recorder not in ("nsys", schema.TORCH_PROFILER) or "python_samples" in trace.tables:
        return ""
    python_ns = int(cpu_activity.late_idle(trace).python_ns.sum())
    if python_ns < _MUCH_PYTHON * max(sum(gaps.steady_spans_ns(trace).values()), 1):
        return ""
    how = wording.by_recorder(
        trace, "traceview record", "torch.profiler.profile(with_stack=True)", "traceview record"
    )
    return f" To see the lines, record again with {how}."


def allocation_remedy(trace: Trace, rows: Array) -> str:
    """The remedy for idle time in allocating calls, by the calls that took most of it."""
    every, names = gaps.gaps(trace), trace.recorded("api_calls").texts("name")
    rows = rows[every.within[rows] >= 0]
    code, idle_ns = names.codes[every.within[rows]], every.idle_ns[rows]

    def calls_of(wanted: re.Pattern[str]) -> Mask:
        result: Mask = names.matching(wanted.match)[every.within[rows]]
        return result

    def time_in(wanted: re.Pattern[str]) -> int:
        return int(idle_ns[calls_of(wanted)].sum())

    if region := terms(trace).data_region:
        return region
    total_ns = int(idle_ns.sum())
    if len(code) and 2 * time_in(POOLS) > total_ns:
        return _KEEP_POOL
    allocated_ns, freed_ns = time_in(_DEVICE_MEMORY), time_in(_FREES)
    if framework(trace) != "torch":
        return action_for(trace, causes.ALLOCATION)
    # Only its allocator frees device memory in the middle of a PyTorch program, but for a few
    # blocks that libraries free as they start.
    often = calls_of(_FREES).sum() > LEAST_OF_RETRIES * calls_of(_DEVICE_MEMORY).sum()
    both = min(allocated_ns, freed_ns) > LEAST_OF_RETRIES * total_ns
    return _RETRIES if often and both else _GROWS


def shared_gpu(trace: Trace) -> str:
    """The remedy where a free GPU starts launched work late."""
    draws = trace.recorded("api_calls").texts("name").matching(_GRAPHICS.match).any()
    if draws:
        return _WITH_GRAPHICS
    return _SHARED_GPU % (
        ("rocm-smi", "") if wording.on_amd(trace) else ("nvidia-smi", _SIDE_BY_SIDE)
    )


def fewer_waits(range_path: str | None) -> str:
    """The remedy for waits of the CPU in this range, before which a free GPU starts work late."""
    return _COALESCE if "aten::_coalesce" in (range_path or "") else _FEWER_WAITS


_MANY_KEPT = 100


def never_freed(trace: Trace) -> tuple[str, int] | None:
    """The call that allocates device memory again and again where none frees any, and how often."""
    names = trace.recorded("api_calls").texts("name")
    allocates, frees = (names.matching(each.match) for each in (_DEVICE_MEMORY, _FREES))
    if frees.any() or np.count_nonzero(allocates) < _MANY_KEPT:
        return None
    return str(names[int(np.flatnonzero(allocates)[0])]), int(np.count_nonzero(allocates))


LEAST_OF_RETRIES = 0.1
"""Calls that free and calls that allocate both take this part: 64 and 36 % where PyTorch's
allocator retries (pytorch/pytorch#104509)."""


SLOTS: Mapping[str, Callable[[Trace], str]] = {
    "fewer_launches": wording.fewer_launches,
    "do_elsewhere": _do_elsewhere,
    "early_uploads": wording.early_uploads,
    "memory_pool": lambda trace: terms(trace).pool,
}
"""What the fields in the action of a cause stand for."""
_SLOT = re.compile(r"\{(\w+)\}")


def short_gaps_remedy(trace: Trace, after: Integers) -> str:
    """The remedy for short gaps between operations of a stream, by the operations after them."""
    if in_xla_loops(trace)[after].mean() > 0.5:
        return wording.UNROLL_LOOPS
    if cuda_graphs(trace).node[after].mean() > 0.5:
        return _SHORT_GAPS
    return _SHORT_GAPS + _SHORTER_IN_GRAPHS


_LEAVE_ON_GPU = (
    "Compute this on the GPU and leave the data there: it comes between reading results back and "
    "the next upload, so it can hardly be done earlier. What must stay on the CPU can take turns "
    "with the GPU on two sets of data."
)

_SEVERAL_AT_ONCE = (
    "Work on several cases at once (searches, environments, sequences), so that one upload and "
    "one read-back serve all, or let the GPU work on one set while the CPU works on the other: "
    "this comes between reading results back and the next upload, so it can hardly be done earlier."
)
_DATA = 1 << 16
"""Bytes from which on results are data. The CPU decides by less: 144 bytes of a tree search."""


def take_out(trace: Trace, own: Mask) -> str:
    """The remedy for launch-late idle time, of these gaps, in which the CPU did other work."""
    idle_ns, read = gaps.gaps(trace).idle_ns, between_copies(trace)
    if 2 * int(idle_ns[own & (read > 0)].sum()) > int(idle_ns[own].sum()):
        return _LEAVE_ON_GPU if np.median(read[own & (read > 0)]) > _DATA else _SEVERAL_AT_ONCE
    what = (
        "Take this CPU work out of the loop: do it earlier"
        if len(pace(trace).timed)
        else "Take this CPU work out of the way: do it earlier or later"
    )
    return (
        f"{what}, or {wording.elsewhere(trace)}, so that launches reach the GPU before it runs dry."
    )


def other_work_remedy(
    trace: Trace, line: line_sites.LineSite | None, samples: lines.IdleSamples
) -> str:
    """The remedy for CPU work other than launching, by what most of it is, else by its line."""
    task, part = cpu_tasks.main_task(trace, samples.site, samples.time_ns)
    if task and part > _MOSTLY_ONE_TASK:
        return task.remedy
    if line and framework(trace) == "torch":
        call = line.inner if line.inner and _MAKES.match(line.inner) else ""
        if not line.inner and _TO_COPY.search(line.source or ""):
            call = wording.made_on_cpu(line.source or "")
        if call:
            return wording.make_on_gpu(call)
    return take_out(trace, groups.marked(samples.gap, len(gaps.gaps(trace))))


_MOSTLY_ONE_TASK = 0.5


def operators_in(pattern: str | None) -> list[str]:
    """The operators of torch at the end of a range path, the outermost first."""
    found = _OPERATORS.search(pattern or "")
    return re.findall(r"aten::(\w+)", found[0]) if found else []


def in_operators(trace: Trace, pattern: str | None, own: Mask) -> str:
    """The remedy for CPU work other than launching in this range, by the operator that fills."""
    makes = next((name for name in operators_in(pattern) if _MAKES.match(name.rstrip("_"))), None)
    return wording.make_on_gpu(f"torch.{makes}") if makes else take_out(trace, own)


def lost_by(trace: Trace, cause: int) -> str:
    """The clause on a cause that follows `The GPU sat idle for 147 ms (135 gaps)`."""
    if cause == causes.GRAPH_LAUNCH and not builds_graphs(trace):
        return "while the CPU launched the next CUDA graph"
    return causes.CAUSES[cause].lost


def if_repeated(trace: Trace, remedy: str, cause: int) -> str:
    """A remedy for a single gap, worded so that it holds only if a loop repeats the gap."""
    steps = "every step does" if len(pace(trace).timed) else "a longer run repeats"
    again = f"{remedy[0].lower()}{remedy[1:].rstrip('.')}"
    return f"If {steps} this, {again}{causes.CAUSES[cause].once or ''}."


@fact
def builds_graphs(trace: Trace) -> bool:
    """Whether CUDA graphs are instantiated, uploaded or changed about as often as launched."""
    names = trace.recorded("api_calls").texts("name")
    builds = [name for name in map(str, names.values) if _BUILDS.match(name)]
    launches = np.count_nonzero(cuda_graphs(trace).whole | cuda_graphs(trace).node)
    return bool(names.isin(builds).sum() > LEAST_FRACTION_OF_BUILDS * launches)


# Idle time in which cuDNN plans its attention on the CPU: once for each shape it has not seen.

_KERNELS = re.compile(r"^cudnn_generated_\w*sdpa_")
_CALLED = r"(?:sdpa|attention|attn|attend)(?!\w*mask)\w*"
_FUNCTION = re.compile(
    rf"::\w*{_CALLED}|/(?:torch|transformers|diffusers|timm)/.*{_CALLED}\.py::"
    # The functions of C++ have no frame: these call what is compiled, and all of backward.
    r"|/torch/(?:_ops\.py::__call__|autograd/graph\.py::_engine_run_backward)$",
    re.IGNORECASE,
)
_ANOTHER = re.compile(r"/transformer_engine/")
"""It calls cuDNN itself, not through PyTorch."""
_LINE = re.compile(rf"{_CALLED}\(", re.IGNORECASE)
_FEW_GRIDS = 2
"""Different grids that layers of fixed shapes have; plans are made again only where shapes vary."""


def planning_ns(trace: Trace, samples: lines.IdleSamples) -> int:
    """Idle time of samples in calls of attention whose kernel is one of cuDNN's, of varying shape.

    Memsets may come between the plan and the kernel, which is the first one on their stream.
    """
    kernels = trace.recorded("kernels")
    own = kernels.texts("name").matching(_KERNELS.match)
    if not own.any():
        return 0
    # True for the stacks that end in a call of PyTorch's attention, by the line if it is known.
    by_line, line_known = leaves_at(trace, _LINE)
    by_function = leaves_in(trace, _FUNCTION) & ~leaves_in(trace, _ANOTHER)
    calls: Mask = np.where(line_known, by_line, by_function)
    python = np.flatnonzero(samples.site < len(calls))
    chosen = python[calls[samples.site[python]]]
    kernel = _next_kernels(trace, gaps.gaps(trace).after[samples.gap[chosen]])
    hit = (kernel >= 0) & own[kernel]
    if groups.group(*(kernels[f"grid_{axis}"][kernel[hit]] for axis in "xyz")).size <= _FEW_GRIDS:
        return 0
    return int(samples.time_ns[chosen[hit]].sum())


def _next_kernels(trace: Trace, operation: Integers) -> RowNumbers:
    """The row of the first kernel from each operation on, on its stream; −1 without one."""
    ops = operations(trace)
    kernels = np.flatnonzero(ops.kind == Kind.KERNEL)
    key = np.sort(ops.stream[kernels] * np.int64(len(ops)) + kernels)
    at = np.searchsorted(key, ops.stream[operation] * np.int64(len(ops)) + operation)
    following = np.append(key, -1)[at]
    on_stream = following // max(len(ops), 1) == ops.stream[operation]
    return np.where(on_stream, ops.row[following % max(len(ops), 1)], -1).astype(np.int32)


# Remedies for idle time in which the CPU did one thing but launching, by who did it.
#
# Measured on one H200, steps with and without the remedy: docs/accuracy.md.

_PLANS = (
    "Turn cuDNN's attention off (torch.backends.cuda.enable_cudnn_sdp(False)), or pad sequences to "
    "a few lengths: it makes a plan on the CPU for each shape that it has not seen."
)
_KEEP_ITERATOR = (
    "Keep the DataLoader's iterator, or its workers (persistent_workers=True): each "
    "next(iter(…)) starts them again, and lets them load batches that nobody takes."
)
_NEW_ITERATOR = re.compile(r"\bnext\(\s*(?:iter|enumerate)\(")


def part_remedy(trace: Trace, part: late_parts.CpuPart, line: line_sites.LineSite | None) -> str:
    """The remedy for a part of idle time, by the function that most of it passed in."""
    stack, time_ns = part.samples.site, part.samples.time_ns
    doing = activities.ACTIVITIES[part.doing]
    if part.doing == activities.DATA_WAIT and line and _NEW_ITERATOR.search(line.source or ""):
        return _KEEP_ITERATOR
    for frame, remedy in doing.by_frame:
        through = stacks_through(trace, re.compile(frame))
        python = stack < len(through)
        if 2 * int(time_ns[python][through[stack[python]]].sum()) > part.time_ns:
            return remedy
    if part.doing != activities.CPU:
        return doing.action
    if framework(trace) == "torch" and 2 * planning_ns(trace, part.samples) > part.time_ns:
        return _PLANS
    return other_work_remedy(trace, line, part.samples)

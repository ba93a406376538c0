"""Memory copies, memsets and page migrations: how much, how fast, and which no kernel hides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from traceview.base import groups, intervals, units
from traceview.base.findings import LEAST_HIGH_NS, RECORDING, Clause, Subject, severity_of
from traceview.base.tables import Cell, Mask, RowNumbers, Table, TableSpec, column_list
from traceview.base.vocabulary.causes import CAUSE_NAMES, COPY_WAIT
from traceview.traces.analyses import base, memory_copies_rows, wording
from traceview.traces.analyses.memory_copies_rows import (
    COPIES,
    OVER_THE_LINK,
    chosen_copies,
    chosen_rows,
    copies_by_kind,
    copy_claim,
    exposed_by,
    kept_ns,
    longest_of,
    rows_of,
)
from traceview.traces.facts import launches, savings, waits
from traceview.traces.facts.idle import gaps
from traceview.traces.facts.kernel_classes import communication_operations, framework, terms
from traceview.traces.facts.operations import Kind, operations, shares_memory
from traceview.traces.facts.ranges.xla_loops import in_xla_loops
from traceview.traces.facts.round_trips import copies_of, round_trips
from traceview.traces.facts.samples import SampledLine, sampled_line
from traceview.traces.facts.savings import Gain
from traceview.traces.facts.steps.steps import steps, warms_up
from traceview.traces.facts.work.peaks import GIVEN, bytes_per_s, peaks
from traceview.traces.rules import FindingRule, TimeClaim, findings, gpu_name, gpu_subject
from traceview.traces.trace import Trace, fact

_ONLY_COPIES_FRACTION = 0.5
# A copy of few bytes takes only its latency, pinned or not; a small copy mostly its latency.
_FEW_BYTES, _SMALL_BYTES, _SLOW_PCT = 4096, 1 << 16, 33.0
_OFTEN, _ABOUT_EQUAL, _BESIDE = 4, 1.25, 0.1
# A line with less of the copies' time than the one part is not named, with the other alone.
_MUCH_FRACTION, _NEARLY_ALL_FRACTION = 0.25, 0.9
# A program that runs on after its last step for more than this part of its time has other work.
_TAIL_FRACTION = 0.2
_SLOW_UPLOAD = ("H2D", "pageable")
_KEEP = "Keep on the GPU what is copied back and forth: about as many bytes come back as go up. "
_OF_NUMBA = (
    "Pass device arrays (cuda.to_device) to kernels: Numba copies NumPy arrays to the GPU before "
    "each launch and back after it. "
)
_REMEDIES = {
    ("small", "H2D"): "Make the values on the GPU, or copy many at once: each copy takes "
    "microseconds, whatever its size.",
    ("small", "D2H"): "Read results on the CPU less often: each copy takes microseconds, whatever "
    "its size.",
    ("pageable", "H2D"): "{pinned}, so that the next data arrives while kernels run.",
    ("pageable", "D2H"): "{pinned}, or copy less often: results can stay on the GPU.",
    ("pinned", "H2D"): "Start the copies earlier on a stream of their own, so that the next data "
    "arrives while kernels run. Keep on the GPU what is copied more than once, or copy fewer "
    "bytes.",
    ("pinned", "D2H"): "Start the copies on a stream of their own while kernels run, or copy less "
    "often: results can stay on the GPU.",
}
_ONCE = {
    "H2D": "Make the data on the GPU where that is possible, such as zeros and first values.",
    "D2H": "Read back only what the CPU needs, such as a sum that the GPU computes.",
}
"""Of what directives copy, where nothing copies it again."""
_CHECK_LINK = (
    "Check the link (nvidia-smi -q: PCIe generation and width) and the NUMA node of the host "
    "memory: large copies of pinned memory reach most of its rate. "
)
_LARGE_BYTES, _SLOW_LINK_PCT = 1 << 24, 25.0
"""A link of half the width or of the generation before has half the rate: less than a quarter is
no assumption about the link (154 MB of pinned memory at 16 %, a public recording)."""
_ONE_WAY = (
    "This GPU copies one way at a time: issue the uploads and kernels of several parts before the "
    "copies back, so that kernels run beside copies."
)
_FEWER_BYTES = (
    "Copy fewer bytes, in a smaller type for example, or keep on the GPU what is used again. The "
    "saving above is that of overlap alone: copies ({ways}) take {pct} of the time. "
)
_AT_LINK = 0.8
"""From this part of the time on the link is the limit: 87 and 94 % in public recordings of streams
that overlap already, or cannot."""
_TAKE_TURNS = (
    "Divide the work into more parts. The streams of these copies take turns as it is: one copies "
    "back while another uploads and a third computes only if their parts are short and in flight "
    "together."
)
"""Of copies on several streams that run kernels as well."""
_ONE_MEMORY = (
    "Keep this data in {one_memory}, which kernels use where it is: CPU and GPU share their memory "
    "here, so that nothing needs a copy."
)
_COPIED, _NEAR_LINES = re.compile(r"\b([A-Za-z_]\w*)\.(?:cuda|to)\("), 4
"""What a line copies, and how far above it `traceview record` stores the program's lines."""
_OF_LOOPS = "XLA copies what a loop carries from one iteration to the next. "
_IN_BUCKETS = (
    " DistributedDataParallel copies gradients into its buckets unless "
    "gradient_as_bucket_view=True is set."
)
_OF_PACKED = (
    " cuDNN's recurrent layers copy between time steps where sequences are packed "
    "(pack_padded_sequence): pad them instead where the results allow."
)


_MAY_GAIN_MORE = " The program may gain more, since the GPU also sits idle between these copies."


@fact
def _steady_copies(trace: Trace) -> tuple[Table, RowNumbers]:
    """The selected copies, and their operations.

    Left out are those of warm-up, and those after the last step of the loop.

    Weights and results are copied once there, such as by a trainer that moves its model away.
    Copies of sizes seen before belong to the last step, as an inferred step ends with its
    optimizer. A program that goes on for long after its steps has no such end.
    """
    chosen, all_steps, ops = chosen_copies(trace), steps(trace), operations(trace)
    copies = chosen.copies
    # Where the recording lost work, a kernel may have run beside any of them.
    counted = ~chosen.early & ~np.isin(copies["device"], list(gaps.unknown_idle(trace)))
    last_ns = int(all_steps.gpu_end_ns.max(initial=0))
    tail_ns = int(ops.end_ns.max(initial=0)) - last_ns
    if not last_ns or tail_ns > _TAIL_FRACTION * gaps.steady_span_ns(trace):
        return copies.take(counted), chosen.operation[counted]
    after: Mask = copies["start_ns"] >= last_ns
    alike = groups.group(copies.texts("direction").codes, copies["bytes"])
    usual = np.zeros(alike.size, bool)
    usual[alike.ids[~after]] = True
    counted &= ~(after & ~usual[alike.ids])
    return copies.take(counted), chosen.operation[counted]


def _exposed(trace: Trace) -> Iterator[TimeClaim]:
    """Copies between host and GPU while no kernel runs, of the GPU with most of that time.

    `sync-stalls` reports those of round trips.
    """
    spans, (copies, rows) = gaps.steady_spans_ns(trace), _steady_copies(trace)
    left = ~groups.isin(rows, copies_of(round_trips(trace)))
    for row in copies_by_kind(trace, copies.take(left)).rows():
        if row["direction"] not in ("H2D", "D2H"):
            continue
        alike = rows_of(copies, row) & left
        own = copies.take(alike)
        device, exposed_ns = _most_exposed(trace, own)
        span_ns = spans.get(device, 0)
        # Copies of other GPUs run at the same time: their sum would be longer than the run.
        there = rows[alike][own["device"] == device]
        slow = (row["direction"], row["host_memory"]) == _SLOW_UPLOAD
        staging_ns = _staging_idle_ns(trace, there, span_ns) if slow else 0
        if severity_of(exposed_ns + staging_ns, span_ns):
            own_ns = exposed_ns + staging_ns
            gain = savings.of_operations(trace, rows[alike], own_ns=own_ns)
            if gain.saved_ns < staging_ns:
                # Replayed, the next work waits for the bytes as long as the copy did.
                gain = Gain(own_ns, staging_ns)
            # Copies that only move hide behind time in which no engine is full, and nothing else.
            moves = _only_moves(trace, copies, row, device)
            hides = span_ns - _engine_ns(trace, copies, device)[0] if moves else own_ns
            if kept := max(kept_ns(trace, own, device), own_ns - hides):
                most = gain.at_most(max(own_ns - kept, 0))
                # Replayed, the copies would go.
                gain = Gain(most.own_ns, most.saved_ns)
            more = gain.saved_ns > 2 * own_ns
            if gain.saved_ns > own_ns:
                # Replayed, waits around the copies go, too: nothing proves that.
                most = gain.at_most(own_ns)
                gain = Gain(most.own_ns, most.saved_ns) if more else most
            claim = _exposed_claim(trace, copies, there, device, (exposed_ns, staging_ns), gain)
            if more and exposed_ns < _ONLY_COPIES_FRACTION * span_ns:
                claim = replace(claim, said=(*claim.said, _MAY_GAIN_MORE))
            once = len(there) == 1 and own_ns < LEAST_HIGH_NS
            if once or (moves and not severity_of(claim.saved_ns, span_ns)):
                # It is short; or the link is the limit, though nothing but fewer bytes wins time.
                claim = replace(claim, severity="info")
            yield replace(claim, saving="at-most")


def _only_moves(trace: Trace, copies: Table, row: Mapping[str, Cell], device: int) -> bool:
    """Whether the remedy for copies of a GPU leaves each as it is: they are pinned already."""
    if row["host_memory"] != "pinned" or _kind(row) != "pinned" or shares_memory(trace):
        return False
    on_gpu = copies.take(copies["device"] == device)
    if _take_turns(trace, on_gpu.take(rows_of(on_gpu, row)), device):
        return True
    up = row["direction"] == "H2D"
    return up and not (terms(trace).data_region or _comes_back(on_gpu))


def _engine_ns(trace: Trace, copies: Table, device: int) -> tuple[int, str]:
    """How long the engine of a GPU copies that copies longest, and which ways."""
    ways = ("both ways",) if _copies_one_way(trace, device) else ("H2D", "D2H")
    on_gpu = copies.take(copies["device"] == device)
    directions = on_gpu.texts("direction")
    alike = (directions.isin(["H2D", "D2H"] if way == "both ways" else [way]) for way in ways)
    spans = on_gpu["start_ns"], on_gpu["end_ns"]
    times = (intervals.union(*(each[own] for each in spans)).total() for own in alike)
    return max(zip(times, ways, strict=True))


def _copies_one_way(trace: Trace, device: int) -> bool:
    """Whether a GPU is known to copy up or down at a time: 1 of cudaDeviceProp.asyncEngineCount."""
    return trace.devices.cells("copy_engines")[device] == 1


def _most_exposed(trace: Trace, copies: Table) -> tuple[int, int]:
    """The GPU on which most time of these copies is hidden by no kernel, and its steady part."""
    by_device = groups.group(copies["device"])
    parts = exposed_by(trace, copies, by_device)
    worst = int(np.argmax(parts))
    device = int(copies["device"][by_device.first[worst]])
    return device, min(int(parts[worst]), gaps.steady_spans_ns(trace).get(device, 0))


def _exposed_claim(
    trace: Trace, copies: Table, rows: RowNumbers, device: int, lost_ns: tuple[int, int], gain: Gain
) -> TimeClaim:
    """`lost_ns` is the time of these copies of a GPU, and the idle time before them."""
    exposed_ns, staging_ns = lost_ns
    on_gpu = trace.recorded("copies").take(operations(trace).row[rows])
    [row] = copies_by_kind(trace, on_gpu).rows()
    spans, gpu = (
        gaps.steady_spans_ns(trace),
        "{gpu}" if len(gaps.steady_spans_ns(trace)) > 1 else "",
    )
    slow = (row["direction"], row["host_memory"]) == _SLOW_UPLOAD
    pageable = row["host_memory"] == "pageable"
    line, line_ns = _copying_line(trace, rows) if pageable else (None, None)
    subject = gpu_subject(trace, device) if gpu else RECORDING
    values: dict[str, Cell] = {"exposed_ns": exposed_ns, "gpu": gpu_name(trace, device)}
    if staging_ns:
        values["staging_ns"] = staging_ns
    if line:
        values |= {"site": line.place, "function": line.function, "source": line.source}
        values |= {"site_ns": line_ns} if line_ns else {"all_at": line.place}
        subject = line.subject
    only = exposed_ns >= _ONLY_COPIES_FRACTION * spans[device]
    only = only and not _beside_others(copies, row, device)
    whole = units.duration(exposed_ns) == units.quantity("total_ns", row["total_ns"])
    idle = f"{gpu} runs no kernel" if gpu else "No kernel runs"
    remedy = _REMEDIES[_kind(row), str(row["direction"])].replace("{pinned}", terms(trace).pinned)
    if instead := _of_one_memory(trace):
        remedy = instead
    elif slow and line and (made := _made_anew(trace, line)):
        # The line to change is the one that makes them.
        call, number = made
        remedy, subject = wording.make_on_gpu(call), Subject.of_line(line.file, number)
        values |= {} if subject == line.subject else {"made_at": subject.name}
    elif _slow_link(row):
        remedy = f"{_CHECK_LINK}{remedy[0].upper()}{remedy[1:]}"
    elif _kind(row) == "pinned" and _take_turns(trace, on_gpu, device):
        remedy = _moved(trace, copies, device)
    elif row["direction"] == "H2D" and _comes_back(copies.take(copies["device"] == device)):
        why = _OF_NUMBA if framework(trace) == "numba" else ""
        others = f"Where they are other arrays, {remedy[0].lower()}{remedy[1:]}"
        remedy = f"{_KEEP}{why}{terms(trace).data_region or others}"
    elif by_directives := _by_directives(trace, row):
        remedy = by_directives
    return replace(
        copy_claim(on_gpu, row, values, sum(lost_ns), gain=gain),
        subject=subject,
        span_ns=spans[device],
        work=wording.lost_in(on_gpu),
        # The GPU also idles before such a copy: one cause, and one remedy.
        cause=CAUSE_NAMES[COPY_WAIT] if slow else "",
        remedy=remedy,
        words={
            "only": (gpu or "The GPU") if only else "",
            "idle": idle if not only and not whole else "",
            "idle_all_the_time": idle if not only and whole else "",
            "meanwhile": "meanwhile" if pageable else "",
            "within": "{function}" if line and line.named_function else "",
        },
    )


def _by_directives(trace: Trace, row: Mapping[str, Cell]) -> str:
    """The remedy for copies of a kind that directives make; empty in other programs.

    What is copied once is in a data region already, or needs none.
    """
    kind = str(row["direction"])
    copies = np.count_nonzero(trace.recorded("copies").texts("direction").isin([kind]))
    region = terms(trace).data_region
    return region if not region or copies >= _OFTEN else _ONCE[kind]


def _made_anew(trace: Trace, line: SampledLine) -> tuple[str, int] | None:
    """The call of torch that makes what a line copies, in this line or right above, and its line.

    Such a tensor is new each time: to pin it is one more copy by the CPU.
    """
    table, texts = trace.recorded("source_lines"), [(line.source or "", line.line)]
    copied = _COPIED.search(texts[0][0])
    if copied:
        above = line.line - table["line"].astype(np.int64)
        near = (above > 0) & (above <= _NEAR_LINES) & table.texts("file").isin([line.file])
        rows = np.flatnonzero(near)
        rows = rows[np.argsort(above[rows])].tolist()
        text = ((str(table.texts("text")[row]), int(table["line"][row])) for row in rows)
        set_there = re.compile(rf"\s*{copied[1]}\s*=[^=]")
        texts += [each for each in text if set_there.match(each[0])][:1]
    calls = ((wording.made_on_cpu(text), number) for text, number in texts)
    return next((each for each in calls if each[0]), None)


def _of_one_memory(trace: Trace) -> str:
    """What to do instead of copying where CPU and GPU share memory; empty where they do not."""
    return _ONE_MEMORY.format(one_memory=terms(trace).one_memory) if shares_memory(trace) else ""


def _slow_link(row: Mapping[str, Cell]) -> bool:
    """Whether large copies of pinned memory take far longer than the link needs."""
    pct = row["link_pct"]
    slow = pct is not None and float(pct) < _SLOW_LINK_PCT
    return (
        slow
        and _kind(row) == "pinned" == row["host_memory"]
        and (int(row["median_bytes"] or 0) >= _LARGE_BYTES)
    )


def _take_turns(trace: Trace, on_gpu: Table, device: int) -> bool:
    """Whether these copies are on several streams of a GPU, each of which runs kernels too."""
    kernels, streams = trace.recorded("kernels"), groups.different(on_gpu["stream_id"])
    computing = kernels["stream_id"][kernels["device"] == device]
    return len(streams) > 1 and bool(np.isin(streams, computing).all())


def _moved(trace: Trace, copies: Table, device: int) -> str:
    """The remedy for copies on streams that take turns."""
    one_way, span_ns = _copies_one_way(trace, device), gaps.steady_spans_ns(trace)[device]
    engine_ns, ways = _engine_ns(trace, copies, device)
    remedy = _ONE_WAY if one_way else _TAKE_TURNS
    if engine_ns < _AT_LINK * span_ns:
        return remedy
    pct = units.percent(100 * engine_ns / span_ns)
    return (_FEWER_BYTES.format(ways=ways, pct=pct) + remedy * one_way).rstrip()


def _kind(row: Mapping[str, Cell]) -> str:
    """The kind of remedy: by host memory, or for copies so small that latency slows them.

    Not where a few large copies among them take the time.
    """
    median, link_pct = int(row["median_bytes"] or 0), row["link_pct"]
    pinned = "pageable" if row["host_memory"] == "pageable" else "pinned"
    if int(row["bytes"] or 0) > _SMALL_BYTES * int(row["calls"] or 1):
        return pinned
    slow = link_pct is not None and float(link_pct) < _SLOW_PCT and row["host_memory"] == "pinned"
    return "small" if median <= _FEW_BYTES or (slow and median <= _SMALL_BYTES) else pinned


def _staging_idle_ns(trace: Trace, uploads: RowNumbers, span_ns: int) -> int:
    """Steady idle time of a device that ended with these uploads, spent inside their calls.

    There CUDA moves the bytes through pinned memory of its own. 0 where it is too small for a
    finding. `sync-stalls` leaves it out.
    """
    every = gaps.every_gap(trace)
    staged = waits.staged_uploads(trace) & ~every.one_time & groups.isin(every.after, uploads)
    idle_ns = int(every.idle_ns[staged].sum())
    return idle_ns if severity_of(idle_ns, span_ns) else 0


def _beside_others(copies: Table, row: Mapping[str, Cell], device: int) -> bool:
    """Whether copies of another kind run during a good part of a row's copies."""
    on_gpu = copies.take(copies["device"] == device)
    own = rows_of(on_gpu, row)
    spans = (on_gpu["start_ns"], on_gpu["end_ns"])
    own_time, other_time = (intervals.union(*(each[m] for each in spans)) for m in (own, ~own))
    return intervals.intersection(own_time, other_time).total() > _BESIDE * own_time.total()


def _comes_back(copies: Table) -> bool:
    """Whether about as many bytes come back from a GPU as go to it, again and again."""
    directions = copies.texts("direction")
    up, down = (copies["bytes"][directions.isin([one])] for one in ("H2D", "D2H"))
    if min(len(up), len(down)) < _OFTEN or np.median(down) <= _FEW_BYTES:
        return False
    less, more = sorted((int(up.sum()), int(down.sum())))
    return more <= _ABOUT_EQUAL * less


def _copying_line(trace: Trace, rows: RowNumbers) -> tuple[SampledLine | None, int | None]:
    """The line of the program that makes these copies of pageable memory.

    By samples, if they show one; else by the marks of the program, and the time of its copies.
    """
    ops, every, sites = operations(trace), launches.waits(trace), waits.wait_sites(trace)
    rows = rows[ops.launched[rows]]
    of_call = groups.added(ops.call[rows], ops.duration_ns[rows], len(trace.recorded("api_calls")))
    wait = np.flatnonzero(of_call[every.call] > 0)
    if line := sampled_line(trace, wait):
        return line, None
    code, took_ns = sites.site.codes[wait], of_call[every.call[wait]]
    of_site = groups.added(code, took_ns, len(sites.site.values))
    most_ns, all_ns = int(of_site.max(initial=0)), of_call.sum()
    if not most_ns or most_ns < _MUCH_FRACTION * all_ns:
        return None, None
    line = sites.line_of(int(wait[code == np.argmax(of_site)][0]))
    return line, None if most_ns >= _NEARLY_ALL_FRACTION * all_ns else most_ns


def _within_gpu(trace: Trace) -> Iterator[TimeClaim]:
    """Copies within the memory of a GPU, which take turns with kernels."""
    copies, rows = _steady_copies(trace)
    within = copies.texts("direction").isin(["D2D"])
    own = copies.take(within)
    if not len(own):
        return
    device, exposed_ns = _most_exposed(trace, own)
    if not severity_of(exposed_ns, gaps.steady_spans_ns(trace).get(device, 0)):
        return
    on_gpu = own.take(own["device"] == device)
    row = next(copies_by_kind(trace, on_gpu).rows())
    whole = units.duration(exposed_ns) == units.quantity("total_ns", row["total_ns"])
    # Whether most copies within the memory of a GPU are in loops of XLA.
    ops = operations(trace)
    own = (ops.kind == Kind.COPY) & (ops.device == device)
    own[own] = trace.copies.texts("direction").isin(["D2D"])[ops.row[own]]
    spans, in_loops = gaps.steady_spans_ns(trace), bool(in_xla_loops(trace)[own].mean() > 0.5)
    values: dict[str, Cell] = {"exposed_ns": exposed_ns, "gpu": gpu_name(trace, device)}
    yield replace(
        copy_claim(
            *(on_gpu, row, values, exposed_ns),
            without=("median_bytes",),
            gain=savings.of_operations(trace, rows[within], own_ns=exposed_ns),
        ),
        subject=gpu_subject(trace, device),
        span_ns=spans.get(device, 0),
        work=wording.lost_in(on_gpu),
        remedy=_remedy_within(trace, in_loops),
        # The pauses before the copies go with them: measured in docs/accuracy.md.
        saving="at-least" if in_loops else "about",
        words={
            "where": "{gpu}" if len(spans) > 1 else "the GPU",
            "how_long": "in that time" if whole else "for {exposed_ns} of it",
        },
    )


def _remedy_within(trace: Trace, in_loops: bool) -> str:
    if in_loops:
        return _OF_LOOPS + wording.UNROLL_LOOPS
    remedy, is_torch = terms(trace).copies_on_gpu, terms(trace).name == "torch"
    if is_torch and communication_operations(trace).any():
        remedy += _IN_BUCKETS
    if is_torch and wording.has_recurrent_layers(trace):
        remedy += _OF_PACKED
    return remedy


def _of_warm_up(trace: Trace) -> Iterator[TimeClaim]:
    """Pageable copies of warm-up that no kernel hides, for information."""
    chosen = chosen_copies(trace)
    copies = chosen.copies.take(chosen.early)
    for row in copies_by_kind(trace, copies).rows():
        exposed_ns = int(row["exposed_ns"] or 0)
        if row["host_memory"] == "pageable" and severity_of(exposed_ns, gaps.steady_span_ns(trace)):
            claim = copy_claim(copies, row, {}, exposed_ns)
            claim = replace(claim, remedy=_of_one_memory(trace) or _by_directives(trace, row))
            words = {"warm_up": "warm-up or " * warms_up(trace)}
            yield replace(claim, window=longest_of(copies, row), words=words, severity="info")


RULES = (
    FindingRule(
        _exposed,
        "{calls:copy|copies} of {host_memory} memory "
        f"({{direction}}, {wording.SIZE}) "
        "{calls?takes|take} {total_ns} ({bytes_per_s})[ and "
        "{calls?blocks|block} the CPU {meanwhile}].[ {only} does nothing else for "
        "{exposed_ns}.][ {idle} for {exposed_ns} of it.]"
        "[ {idle_all_the_time} in that time.]",
        clauses=(
            Clause(
                " Before {calls?it|them}, the GPU idles for {staging_ns} more while the CPU moves "
                "the bytes to pinned memory."
            ),
            Clause(" {calls?It is|They are} made {all_at:at}[ in {within}][ (`{source}`)]."),
            Clause(
                " {site_ns} of {total_ns} is {site:at}[ in {within}][ (`{source}`)], the most of "
                "any line."
            ),
            Clause(" Their data is made at {made_at}."),
        ),
    ),
    FindingRule(
        _within_gpu,
        f"{{calls:copy|copies}} within the memory of {{where}} ({{direction}}, {wording.SIZE}) "
        "{calls?takes|take} {total_ns} ({bytes_per_s}). No kernel runs {how_long}.",
    ),
    FindingRule(
        _of_warm_up,
        "{calls:copy|copies} of pageable memory ({direction}) {calls?takes|take} {total_ns} of "
        "{warm_up}start-up ({bytes_per_s}) and {calls?blocks|block} the CPU meanwhile.",
        "Pin the host memory if the program is often started: a longer run pays this once.",
    ),
    *memory_copies_rows.RULES,
)


# Memory copies, memsets and page migrations: how much, between which memories, how fast.
#
# `bytes_per_s` is the bytes of all calls ÷ the sum of their times. `exposed_ns` is the union of
# the copies on a GPU, less the time in which kernels run there: only that can be saved.

SETS = TableSpec(
    "sets",
    "memsets on all GPUs",
    column_list("""
        calls int64: memsets
        bytes int64: bytes written, all calls
        total_ns int64: time of all calls
        bytes_per_s int64: bytes ÷ time
    """),
    brief="calls bytes total_ns bytes_per_s",
)


def compute(trace: Trace) -> base.Result:
    copies = chosen_copies(trace).copies
    return base.Result(
        {"copies": copies_by_kind(trace, copies), "sets": _sets(trace)},
        tuple(findings(trace, RULES)),
        notes=_notes(trace, copies),
    )


def _notes(trace: Trace, copies: Table) -> tuple[str, ...]:
    """The source of the link's rate: no recording says how a GPU is connected."""
    crosses = copies.texts("direction").isin(OVER_THE_LINK)
    devices = groups.different(copies["device"][crosses])
    links = [peaks(trace)[device].get("link") for device in devices]
    notes = {
        f"link_pct is relative to {units.quantity('bytes_per_s', link.value)} per direction "
        f"({link.source})."
        for link in links
        if link
    }
    by_data_sheet = any(link and link.source != GIVEN for link in links)
    unknown = None in links
    if unknown:
        notes.add("link_pct is absent where the data sheet of the GPU is unknown.")
    if not notes:
        return ()
    connection = (
        "The trace does not say how the GPU is connected: pass --peak link=BYTES_PER_S."
        if by_data_sheet or unknown
        else ""
    )
    return (" ".join(filter(None, (*sorted(notes), connection))),)


def _sets(trace: Trace) -> Table:
    sets = trace.recorded("sets")
    sets = sets.take(chosen_rows(trace, Kind.SET, len(sets)))
    if not len(sets):
        return Table.empty(SETS.columns)
    size, time = (sets["bytes"].sum(keepdims=True), sets.duration_ns.sum(keepdims=True))
    calls = np.array([len(sets)])
    rate = bytes_per_s(size, time)
    return Table(
        SETS.columns, {"calls": calls, "bytes": size, "total_ns": time, "bytes_per_s": rate}
    )


ANALYSIS = base.Analysis(
    name="memory-copies",
    title="Memory copies",
    question="What was copied, how fast, and did it block the CPU?",
    needs=("copies",),
    tables=(COPIES, SETS),
    compute=compute,
    charts=(
        base.Chart(
            "bars",
            "copies",
            "Copy time by direction and host memory",
            "direction",
            "total_ns",
            stack="host_memory",
        ),
    ),
)

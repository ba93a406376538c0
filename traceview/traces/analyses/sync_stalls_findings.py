"""The waits that `sync-stalls` lists, and its findings: by loop that reads, else by line."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceview.base import groups
from traceview.base.findings import Clause, Finding, Subject, severity_of
from traceview.base.groups import Groups
from traceview.base.records import record
from traceview.base.tables import Array, Cell, Integers, Mask, Texts
from traceview.base.vocabulary.causes import CAUSES, COPY_WAIT, LAUNCH_LATE, SYNC_DRAIN
from traceview.traces.analyses import wording
from traceview.traces.facts import copies, savings
from traceview.traces.facts.forecast import LEAST_STEPS, model
from traceview.traces.facts.idle.gaps import every_gap, unknown_idle
from traceview.traces.facts.idle.stack_sites import function_of_waits
from traceview.traces.facts.idle.typical import typical_gap
from traceview.traces.facts.kernel_classes import framework, terms
from traceview.traces.facts.launches import between, waits
from traceview.traces.facts.operations import CallKind, api_calls, operations
from traceview.traces.facts.ranges import ranges, selection
from traceview.traces.facts.ranges.ranges import UNATTRIBUTED, range_tree
from traceview.traces.facts.round_trips import RoundTrips, lost_by, round_trips
from traceview.traces.facts.samples import (
    SampledLine,
    sampled_library,
    sampled_line,
)
from traceview.traces.facts.savings import Gain
from traceview.traces.facts.steps.steps import in_warm_up_range, warm_up_end_ns
from traceview.traces.facts.waits import (
    BLOCKING,
    CallSites,
    at_uploads,
    pageable_uploads,
    staged_uploads,
    stall_span_ns,
    stalls,
    wait_sites,
)
from traceview.traces.rules import FindingRule, TimeClaim, findings, severity_of_part
from traceview.traces.trace import Trace, fact


@record
class ListedWaits:
    """Waits, one row per wait, and their groups: one per row of the table `sites`.

    `row` is the row in waits, `pattern` a row of the range tree's patterns (−1: none).
    `range_path` has one entry per group: the path of its range, or the pattern if there are
    several.
    """

    row: Integers
    api: Texts
    site: CallSites
    pattern: Array
    groups: Groups
    range_path: Texts

    def cells(self, number: int) -> dict[str, Cell]:
        """The cells that identify the row of `sites` to which a wait belongs."""
        return {
            "api": self.api[number],
            "range_path": self.range_path[int(self.groups.ids[number])],
            "call_site": self.site.site[number],
            "hint": self.site.hint[number],
        }


def listed_waits(trace: Trace) -> ListedWaits:
    """The selected waits: outermost blocking calls, and whatever else caused a gap."""
    every, cost, tree = waits(trace), stalls(trace), ranges.range_tree(trace)
    own = np.arange(len(every))
    listed = (cost.outer == own) & np.isin(every.does, BLOCKING)
    listed |= np.isin(own, cost.wait)
    row = np.flatnonzero(selection.selected_calls(trace)[every.call] & listed)
    api = trace.api_calls.texts("name").take(every.call[row])
    site = wait_sites(trace).take(row)
    place = ranges.attribute(trace, every.thread[row], every.process[row], every.start_ns[row])
    path = place.path(tree)
    pattern = tree.pattern_of_paths(path)
    each = groups.group(api.codes, site.site.codes, site.hint.codes, pattern)
    # The path of each group, or its pattern if its waits have several paths.
    one = groups.distinct(each, path) == 1 if each.size else np.zeros(0, bool)
    texts = np.empty(each.size, object)
    for source, number, own in ((tree.paths, path, one), (tree.patterns, pattern, ~one)):
        texts[own] = source.texts(number[each.first[own]]).decode()
    return ListedWaits(row, api, site, pattern, each, Texts.of(texts))


# What the findings count is after warm-up. Without a line only idle time that a synchronization
# caused counts: gpu-idle reports the other causes. What the CPU does after a wait is none of it:
# where that takes longer, the finding says so.


@fact
def waits_for_no_result(trace: Trace) -> Mask:
    """True for the synchronizations, among waits, before which nothing was copied to the host.

    Only since the thread's previous synchronization: earlier copies had arrived by it.
    """
    every, ops = waits(trace), operations(trace)
    result: Mask = every.does == CallKind.SYNCHRONIZE
    copying, syncs = ops.call[copies.downloads(trace) & ops.launched], every.call[result]
    ends = groups.marked(syncs, len(api_calls(trace)))
    of_copy, of_sync = between(trace, ends, copying, syncs)
    result[result] = ~groups.isin(of_sync, of_copy)
    return result


# Waits in which XLA reads on the CPU whether a loop goes on, or which branch a cond takes.
#
# XLA opens a range around each operation that it runs, such as `Thunk:#hlo_op=while.41,…#`. A
# while loop whose number of iterations is not known when it is compiled waits for its condition
# before every iteration; lax.scan, and lax.fori_loop with constant bounds, have a known one.
# Inferred steps may begin within such a range.

_REMEDIES = {
    "while": "Give the loop a fixed number of iterations (lax.scan, or lax.fori_loop with constant "
    "bounds), or do more in each (vmap, larger batches). XLA reads its condition on the CPU before "
    "every iteration.",
    "cond": "Compute both branches and choose with jnp.where, where they are cheap. XLA reads on "
    "the CPU which branch a lax.cond takes.",
}
_OPERATION = re.compile(
    r"\bThunk:#.*\bhlo_op=(while|cond)[^,/]*,unique_hlo_op_id=[^,/]*(?:/step_#)?$"
)


def remedy(trace: Trace, pattern: Integers, idle_ns: Integers) -> str | None:
    """The remedy, if control flow took half of the idle time of these waits; else None.

    `pattern` is the row of each wait in the patterns of the range tree, −1 without a range.
    """
    patterns, lost = range_tree(trace).patterns, dict.fromkeys(_REMEDIES, 0)
    each = groups.group(pattern)
    for row, own_ns in zip(pattern[each.first].tolist(), groups.sums(each, idle_ns), strict=True):
        match = _OPERATION.search(patterns[row]) if row >= 0 else None
        if match:
            lost[match[1]] += int(own_ns)
    kind = max(lost, key=lambda kind: lost[kind])
    return _REMEDIES[kind] if 0 < np.sum(idle_ns) <= 2 * lost[kind] else None


_NOTHING_READ = (
    "Remove it if the CPU needs nothing from the GPU here: no result was copied back before "
    "it. If the CPU must wait, for example before it accesses memory that the GPU also uses, "
    "wait for an event of that work as late as possible."
)
_ORDERS = (
    "Make the streams wait for each other (cudaEventRecord, cudaStreamWaitEvent), or put this work "
    "on one stream: the work after the wait runs on another stream than the work before it, and "
    "no result was copied back."
)
_MANAGED = (
    "Make the CPU wait as late as possible, for an event of the work whose results it reads: the "
    "program uses managed memory, which needs no copy back."
)
_MORE = 1.1
"""From here on a saving needs a word on why it is more than the idle time after the waits."""
_RELAUNCH_NS = 10_000
"""From a wait to the next work a launch call and its pause pass: about two calls, recorded."""
_AFTER_IT = (
    "Look first at what comes after the wait (gpu-idle): it takes longer. Then remove the wait."
)
_LOAD = "Warm up before the loop, so that code is loaded there."
_ACTIONS = dict.fromkeys((CallKind.LOAD, CallKind.LOOK_UP), _LOAD)


def stall_findings(trace: Trace, listed: ListedWaits) -> Iterator[Finding]:
    """The findings on the listed waits.

    Those of a place after which the GPU is hardly idle are hidden: what a replay without them wins
    shows them, as the CPU is ahead then where the GPU now waits for launches.
    """
    steps = int(model(trace).follows.sum()) if len(api_calls(trace)) else 0
    may_hide = steps >= LEAST_STEPS and not unknown_idle(trace)
    places = [*_places(trace, listed, steps if may_hide else None)]
    hidden = sorted((each for each in places if each.hidden), key=lambda each: -each.took_ns)
    claims = [_claim(trace, listed, each) for each in hidden[:MOST_HIDDEN]]
    seen = (_claim(trace, listed, each) for each in places if not each.hidden)
    told = FindingRule(lambda _: seen, MESSAGE, clauses=CLAUSES)
    return findings(trace, (told, FindingRule(lambda _: (c for c in claims if c.edit), HIDDEN)))


MESSAGE = (
    "{place} leaves the GPU idle for {idle_ns} {when} {what}[, and more at {later}]. The CPU "
    "spends {wait_ns} in {calls?it|them}."
)
HIDDEN = (
    "{place} holds the CPU up for {wait_ns} in {what}. Without it the CPU would be ahead at later "
    "launches."
)
MOST_HIDDEN = 3
"""Places with little idle time after their waits whose saving is replayed, the longest waits first:
a replay of 60,000 items takes some 10 ms with its error."""
CLAUSES = (
    Clause(" No kernel runs during {copy_ns} of copies.", 0.1, "idle_ns"),
    Clause(" After that the GPU sat idle for {after_ns} more {why}."),
)


@record
class WaitPlace:
    """The waits of a finding, rows of the listed ones: of a call at a line, or of round trips.

    They took `took_ns`. `lost` are the parts of gaps that they cost, `idle_ns` is that time, and
    `copy_ns` that of the round trips' copies beside which no kernel runs; it is `hidden` where that
    is little. The wait `first` is their evidence, `sampled` their line where no mark names one.
    """

    own: Integers
    first: int
    took_ns: int
    lost: Mask
    idle_ns: int
    hidden: bool
    sampled: SampledLine | None
    trips: RoundTrips | None = None
    copy_ns: int = 0


def _places(trace: Trace, listed: ListedWaits, steps: int | None) -> Iterator[WaitPlace]:
    """The places of waits worth a finding; hidden ones wait in each of so many `steps`.

    Round trips of a loop are one, whatever their lines and calls. Other waits are grouped by call
    and line, without a line by range; those of one call that were sampled at one line are one.
    """
    every, parts, cost = waits(trace), every_gap(trace), stalls(trace)
    ops, span_ns = operations(trace), stall_span_ns(trace)
    # What pageable uploads cost, `memory-copies` says.
    staged = staged_uploads(trace)
    counted = ~parts.one_time & ~np.isin(parts.device, list(unknown_idle(trace))) & ~staged
    idle_ns = cost.idle_ns(counted)[listed.row]
    drained_ns = cost.idle_ns(counted & (parts.cause == SYNC_DRAIN))[listed.row]
    took_ns, site = every.duration_ns[listed.row], listed.site.site.codes
    start, end, process = (a[listed.row] for a in (every.start_ns, every.end_ns, every.process))
    left = (end >= warm_up_end_ns(trace)) & ~in_warm_up_range(trace, process, start)
    left |= idle_ns > 0

    def kind(lost_ns: int, took_ns: int, syncs: int) -> bool | None:
        if severity_of(lost_ns, span_ns):
            return False
        often = steps is not None and syncs >= steps
        return True if often and severity_of(took_ns, span_ns) else None

    for trips in round_trips(trace):
        own = np.flatnonzero(groups.isin(listed.row, trips.wait) & left)
        left[own] = False
        lost = lost_by(trace, parts, [trips]) | _caused_by(trace, listed.row[own])
        copied, at_once = trips.operation, groups.group(np.zeros(len(trips.operation), np.int64))
        spans = ops.device[copied], ops.start_ns[copied], ops.end_ns[copied]
        copy_ns = int(copies.exposure(trace, *spans, at_once).exposed_ns.sum())
        lost_ns, all_ns = int(parts.idle_ns[lost].sum()), int(took_ns[own].sum())
        hidden = kind(lost_ns + copy_ns, all_ns, len(trips.operation)) if len(own) else None
        if hidden is not None:
            # The line that costs most: by idle time, without any by the waits.
            most = idle_ns[own] if idle_ns[own].any() else took_ns[own]
            by_line = groups.group(site[own])
            line = by_line.ids == np.argmax(groups.sums(by_line, most))
            first = int(own[line][np.argmax(most[line])])
            sampled = None if site[first] >= 0 else sampled_line(trace, listed.row[own])
            yield WaitPlace(own, first, all_ns, lost, lost_ns, hidden, sampled, trips, copy_ns)
    pattern = np.where(site < 0, listed.pattern, -2)
    each = groups.group(site, listed.api.codes, listed.site.hint.codes, pattern)
    stake_ns = np.where(site >= 0, idle_ns, drained_ns)
    syncs = (every.does[listed.row] == CallKind.SYNCHRONIZE).astype(np.int64)
    sums = (groups.sums(each, np.where(left, of, 0)).tolist() for of in (stake_ns, took_ns, syncs))
    kinds = [kind(*of_group) for of_group in zip(*sums, strict=True)]
    found: dict[object, tuple[list[Integers], SampledLine | None]] = {}
    for number in [number for number, hidden in enumerate(kinds) if hidden is not None]:
        own = np.flatnonzero((each.ids == number) & left)
        first = int(own[0])
        sampled = sampled_line(trace, listed.row[own]) if site[first] < 0 else None
        call = int(listed.api.codes[first]), int(listed.site.hint.codes[first]), kinds[number]
        at = (*call, sampled.file, sampled.line) if sampled else number
        found.setdefault(at, ([], sampled))[0].append(own)
    for of_line, sampled in found.values():
        own = np.sort(np.concatenate(of_line))
        if _exposed_uploads_ns(trace, every.call[listed.row[own]]) > stake_ns[own].sum():
            continue
        lost = _caused_by(trace, listed.row[own]) & ~staged
        first = int(own[np.argmax(stake_ns[own])])
        figures = first, int(took_ns[own].sum()), lost, int(stake_ns[own].sum())
        yield WaitPlace(own, *figures, bool(kinds[each.ids[first]]), sampled)


def _exposed_uploads_ns(trace: Trace, calls: Array) -> int:
    """The time in which no kernel hides the uploads of pageable memory that these calls make."""
    ops = operations(trace)
    rows = np.flatnonzero(pageable_uploads(trace) & ops.launched)
    rows = rows[groups.isin(ops.call[rows], calls)]
    at_once = groups.group(np.zeros(len(rows), np.int64))
    spans = ops.device[rows], ops.start_ns[rows], ops.end_ns[rows]
    return int(copies.exposure(trace, *spans, at_once).exposed_ns.sum())


def _claim(trace: Trace, listed: ListedWaits, place: WaitPlace) -> TimeClaim:
    """The claim on the waits of a place; its evidence is the costliest wait."""
    every, rows, first, trips = waits(trace), listed.row[place.own], place.first, place.trips
    lost_ns, gaps, span_ns = place.idle_ns + place.copy_ns, every_gap(trace), stall_span_ns(trace)
    name, named = _name(trace, listed, place)
    line = place.sampled or listed.site.line_of(first)
    what, called = _called(trace, listed, place)
    values = {**named, "calls": len(trips.operation if trips else rows), **called}
    values |= {"wait_ns": place.took_ns} | ({} if place.hidden else {"idle_ns": place.idle_ns})
    # A call that itself held the launch back, such as an allocation, has no idle time after it.
    drained_ns = gaps.idle_ns[place.lost & (gaps.cause == SYNC_DRAIN)].sum()
    when = "after" if 2 * drained_ns >= place.idle_ns else "during"
    when = "between" if trips and trips.of_rows else when
    words = {"place": name, "what": what, "when": when}
    does = CallKind(int(every.does[listed.row[first]]))
    remedy, saving = _action(trace, listed, place, does), _saving(trace, place, rows, does)
    if saving and 0 < saving.saved_ns <= (saving.error_ns or 0):
        # What its error hides is no forecast.
        saving = None
    saved_ns = saving.saved_ns if saving else lost_ns
    after = None if place.hidden else _after_waits(trace, place.lost)
    if after and after[1] > lost_ns:
        # The CPU would be ahead of that, too, but for as long as the GPU has other work.
        saved_ns, saving, remedy = min(saved_ns, lost_ns), None, _AFTER_IT
        values["after_ns"] = after[1]
        words["why"] = CAUSES[after[0]].lost or CAUSES[after[0]].idle
    elif saved_ns > _MORE * lost_ns:
        words["later"] = "later launches"
    if place.hidden or not place.lost.any():
        usual = rows[np.argsort(every.duration_ns[rows], kind="stable")[len(rows) // 2]]
        window = int(every.start_ns[usual]), int(every.end_ns[usual])
    else:
        gap = typical_gap(trace, gaps, place.lost)
        window = int(gaps.start_ns[gap]), int(gaps.end_ns[gap])
    return TimeClaim(
        line.subject if line else Subject("call", str(listed.api[first])),
        values,
        "sites",
        listed.cells(first),
        saved_ns=saved_ns,
        span_ns=span_ns,
        window=window,
        lost=None if place.hidden else wording.lost_in(gaps, place.lost),
        words=words,
        # What it refers to comes before it: that takes longer, and counts no more than this.
        general=remedy == _AFTER_IT,
        remedy=remedy,
        saving="about" if saving else "at-most",
        severity=None if place.hidden else severity_of_part(saved_ns, lost_ns, span_ns) or "info",
        edit=saving.edit if saving else None,
        error_ns=saving.error_ns if saving else None,
        # Nothing that was recorded shows what is hidden.
        at_most="low" if place.hidden else "high",
    )


def _saving(trace: Trace, place: WaitPlace, rows: Integers, does: CallKind) -> Gain | None:
    """What the program gains without these waits, where they can be left out of a replay.

    Bytes that a call moves are moved by any other call, too, and code is loaded once.
    """
    calls = waits(trace).call[rows]
    if place.trips:
        return savings.of_waits(trace, calls, place.trips.operation)
    if does == CallKind.ALLOCATE:
        return savings.of_calls(trace, calls)
    every = every_gap(trace)
    staged_ns = every.idle_ns[place.lost & (every.cause == COPY_WAIT)].sum()
    if does in _ACTIONS or 2 * staged_ns > every.idle_ns[place.lost].sum():
        return None
    return savings.of_waits(trace, calls)


def _after_waits(trace: Trace, lost: Mask) -> tuple[int, int] | None:
    """The cause of most other idle time in the gaps that waits began, and that time."""
    every = every_gap(trace)
    drained = lost & (every.cause == SYNC_DRAIN)
    others = np.isin(every.gap, every.gap[drained]) & ~lost & ~every.one_time
    if not others.any():
        return None
    idle_ns = every.by_cause(others)
    most = int(np.argmax(idle_ns))
    if most == LAUNCH_LATE and idle_ns[most] < _RELAUNCH_NS * every.count(others):
        # That is what the next launch takes, which the CPU would have done before without the wait.
        return None
    return most, int(idle_ns[most])


def _name(trace: Trace, listed: ListedWaits, place: WaitPlace) -> tuple[str, dict[str, Cell]]:
    """The place of waits as the subject of a sentence, and the names in it."""
    cells, sampled = listed.cells(place.first), place.sampled
    if marked := listed.site.line_of(place.first):
        values = {"call_site": marked.site, "source": marked.source, "api": cells["api"]}
        return "{call_site}, `{source}`," if marked.source else "{call_site}", values
    what = "{hint} ({api})" if cells["hint"] else "{api}"
    path = None if cells["range_path"] == UNATTRIBUTED else str(cells["range_path"])
    del cells["call_site"]
    if sampled:
        values = {"line": sampled.place, "function": sampled.function}
        of = " in {function}" if sampled.named_function else ""
        return f"{what} {{line:at}}{of}", {**cells, **values}
    if function := function_of_waits(trace, listed.row[place.own]):
        cells |= {"function": function.function, "module": function.module.rpartition("/")[2]}
        what += " in {function} ({module})"
    return what + wording.inside(trace, path, "range_path"), cells


def _called(trace: Trace, listed: ListedWaits, place: WaitPlace) -> tuple[str, dict[str, Cell]]:
    """What a place calls, and where a library waits, as a template and its values.

    What the line shows itself, such as `.item()`, is not said again.
    """
    site, hint, trips = listed.site, listed.site.hint[place.first], place.trips
    if trips:
        sizes = trace.recorded("copies")["bytes"][operations(trace).row[trips.operation]]
        values = dict[str, Cell](bytes=int(sizes.sum()), copy_ns=place.copy_ns)
        values |= wording.sizes(sizes)
        codes = site.site.codes[place.own]
        what = "{calls:copy|copies} of rows" if trips.of_rows else "{calls:read}"
        what += " of {size_bytes}" + " {sized}" * (len(sizes) > 1)
        if trips.steps and (per_step := round(len(trips.operation) / trips.steps)):
            values["per_step"] = per_step
            what += " ({per_step} per step)"
        at = groups.count(groups.group(codes[codes >= 0]))
        if (others := int(np.count_nonzero(2 * at >= trips.steps)) - 1) > 0:
            values["lines"] = others
            what += ", there and at {lines:other line}"
    else:
        what, values = "{calls:call}" + " to {api}" * bool(site.site[place.first]), {}
    method, source = str(hint).rpartition(".")[2], site.source[place.first]
    if not hint or not source or method in source:
        return what, values
    library = sampled_library(trace, listed.row[place.own])
    where = " in {library}" if library else ""
    return f"{what}, by {{hint}}{where}", {**values, "hint": hint, "library": library}


def _caused_by(trace: Trace, rows: Integers) -> Mask:
    """True for the steady parts, of every_gap, that one of these waits caused."""
    return ~every_gap(trace).one_time & np.isin(stalls(trace).wait, rows)


_LESS_OFTEN = "Read results on the CPU less often"
_ONLY_NEEDED = "Read back only what the CPU needs, such as a sum that the GPU computes"


def _action(trace: Trace, listed: ListedWaits, place: WaitPlace, does: CallKind) -> str:
    own, trips = place.own, place.trips
    if trips:
        if trips.of_rows:
            return wording.rows_at_once(trace)
        less = _ONLY_NEEDED if 2 * place.copy_ns > place.idle_ns else _LESS_OFTEN
        return f"{less}, {terms(trace).later_reads}."
    if does == CallKind.ALLOCATE:
        # The remedy for calls that allocate or free memory.
        keep = " (no torch.cuda.empty_cache in the loop)" if framework(trace) == "torch" else ""
        if len(own) == 1:
            return (
                f"If a longer run repeats this, allocate before the loop and keep "
                f"freed memory{keep}. A pool does this once, when it first grows."
            )
        return f"Allocate before the loop or through a pool, and keep freed memory in it{keep}."
    if does in _ACTIONS:
        return _ACTIONS[does]
    every, rows = every_gap(trace), listed.row[own]
    idle = stalls(trace).idle_ns(place.lost)[rows]
    total, stream = int(idle.sum()), operations(trace).stream
    if 2 * every.idle_ns[place.lost & at_uploads(trace)].sum() > total:
        return f"{wording.early_uploads(trace)}, in few large copies."
    if control := remedy(trace, listed.pattern[own], idle):
        return control
    if 2 * idle[waits_for_no_result(trace)[rows]].sum() > total:
        if copies.uses_managed_memory(trace):
            return _MANAGED
        # Whether most of it lies between work of different streams of a GPU.
        changes = place.lost & (stream[every.before] != stream[every.after])
        orders = 2 * every.idle_ns[changes].sum() > total
        return _ORDERS if orders else terms(trace).no_wait or _NOTHING_READ
    return f"{_LESS_OFTEN}, {terms(trace).later_reads}."

"""The waits that `sync-stalls` lists, and its findings: one per call at a line, or per call
and range without lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.findings import Clause, Finding, Subject, severity_of
from traceview.base.groups import Groups
from traceview.base.records import record
from traceview.base.tables import Array, Cell, Integers, Mask, Texts
from traceview.base.vocabulary.causes import CAUSES, COPY_WAIT, LAUNCH_LATE, SYNC_DRAIN
from traceview.traces.analyses import wording
from traceview.traces.facts import copies, savings
from traceview.traces.facts.dependencies.forecast import LEAST_STEPS, model
from traceview.traces.facts.idle.gaps import every_gap, unknown_idle
from traceview.traces.facts.idle.typical import typical_gap
from traceview.traces.facts.kernel_classes import framework, terms
from traceview.traces.facts.launches import Waits, waits
from traceview.traces.facts.operations import CallKind, api_calls, operations
from traceview.traces.facts.ranges import ranges, selection
from traceview.traces.facts.ranges.ranges import UNATTRIBUTED, range_tree
from traceview.traces.facts.samples import (
    UNNAMED_FUNCTIONS,
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
    tree = ranges.range_tree(trace)
    one = groups.distinct(each, path) == 1 if each.size else np.zeros(0, bool)
    texts = np.empty(each.size, object)
    for source, number, own in ((tree.paths, path, one), (tree.patterns, pattern, ~one)):
        texts[own] = source.texts(number[each.first[own]]).decode()
    return ListedWaits(row, api, site, pattern, each, Texts.of(texts))


# Findings of `sync-stalls`: one per call at a line, or per call and range without lines.
#
# Calls, waits and idle time are those after warm-up. Without a line only idle time that a
# synchronization caused counts: gpu-idle reports the other causes. What the CPU does after a wait
# is none of it: where that takes longer, the finding says so.

# Synchronizations that wait for no result: no copy to the host precedes them.


@fact
def waits_for_no_result(trace: Trace) -> Mask:
    """True for the synchronizations, among waits, before which nothing was copied to the host."""
    ops, calls = operations(trace), api_calls(trace)
    copying = ops.call[copies.downloads(trace) & ops.launched]
    return without_copies(waits(trace), calls.thread[copying], calls.start_ns[copying])


def without_copies(waits: Waits, copy_thread: Array, copy_ns: Integers) -> Mask:
    """True for the synchronizations before which their thread called for no copy to the host.

    Only calls since the thread's previous synchronization count: earlier copies had arrived by it.
    """
    result: Mask = waits.does == CallKind.SYNCHRONIZE
    for thread in groups.different(waits.thread[result]):
        rows = np.flatnonzero(result & (waits.thread == thread))
        copied = np.sort(copy_ns[copy_thread == thread])
        before = np.searchsorted(copied, waits.start_ns[rows])
        result[rows] = np.diff(before, prepend=0) == 0
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
_ACTIONS = {CallKind.LOAD: _LOAD, CallKind.LOOK_UP: _LOAD}


@record
class Costs:
    """Steady idle time that each listed wait caused, in ns; one row per listed wait.

    Time of a GPU whose idle time is unknown is left out.

    `idle_ns` is all of it, `drained_ns` that of synchronizations, `at_stake_ns` that of findings.
    `steady` is True for the waits after warm-up, and for those with steady idle time.
    """

    idle_ns: Integers
    drained_ns: Integers
    at_stake_ns: Integers
    steady: Mask


def stall_findings(trace: Trace, listed: ListedWaits) -> Iterator[Finding]:
    """The findings on the listed waits."""
    seen = FindingRule(lambda of: _claims(of, listed), MESSAGE, clauses=CLAUSES)
    hidden = FindingRule(lambda of: _hidden_claims(of, listed), HIDDEN)
    return findings(trace, [seen, hidden])


MESSAGE = (
    "{place} leaves the GPU idle for {idle_ns} {when} {calls:call}{of}[, and more at {later}]. The "
    "CPU spends {wait_ns} in {calls?it|them}."
)
HIDDEN = (
    "{place} holds the CPU up for {wait_ns} in {calls:call}{of}. Without it the CPU would be ahead "
    "at later launches."
)
MOST_HIDDEN = 3
"""Places with little idle time after their waits whose saving is replayed, the longest waits first:
a replay of 60,000 items takes some 10 ms with its error."""
CLAUSES = (Clause(" After that the GPU sat idle for {after_ns} more {why}."),)


def _claims(trace: Trace, listed: ListedWaits) -> Iterator[TimeClaim]:
    cost, span_ns = _costs(trace, listed), stall_span_ns(trace)
    total = groups.sums(_by_place(listed), cost.at_stake_ns)
    chosen = [number for number, time in enumerate(total) if severity_of(int(time), span_ns)]
    for own, sampled in _places(trace, listed, cost, chosen):
        yield _claim(trace, listed, cost, own, sampled)


def _hidden_claims(trace: Trace, listed: ListedWaits) -> Iterator[TimeClaim]:
    """Claims on synchronizations of each step after which the GPU is hardly idle.

    By what a replay without them wins: then the CPU is ahead where the GPU now waits for launches.
    """
    steps = int(model(trace).follows.sum()) if len(api_calls(trace)) else 0
    if steps < LEAST_STEPS or unknown_idle(trace):
        return
    cost, span_ns, every = _costs(trace, listed), stall_span_ns(trace), waits(trace)
    each = _by_place(listed)
    idle_ns = groups.sums(each, cost.at_stake_ns)
    took_ns = groups.sums(each, np.where(cost.steady, every.duration_ns[listed.row], 0))
    syncs = cost.steady & (every.does[listed.row] == CallKind.SYNCHRONIZE)
    count = groups.sums(each, syncs.astype(np.int64))
    chosen = [
        number
        for number in np.argsort(-took_ns, kind="stable").tolist()
        if count[number] >= steps and severity_of(int(took_ns[number]), span_ns)
        if not severity_of(int(idle_ns[number]), span_ns)
    ]
    for own, sampled in _places(trace, listed, cost, chosen[:MOST_HIDDEN]):
        first, rows = int(own[0]), listed.row[own]
        does = CallKind(int(every.does[rows[0]]))
        saving = _saving(trace, rows, does)
        # What its error hides is no finding.
        if saving is None or saving.saved_ns <= (saving.error_ns or 0):
            continue
        place, values = _place(trace, listed, first, sampled)
        values |= {"calls": len(own), "wait_ns": int(every.duration_ns[rows].sum())}
        of, called = _called(trace, listed, own, first)
        values |= called
        usual = rows[np.argsort(every.duration_ns[rows], kind="stable")[len(rows) // 2]]
        yield TimeClaim(
            _subject(listed, first, sampled),
            values,
            "sites",
            listed.cells(first),
            saved_ns=saving.saved_ns,
            span_ns=span_ns,
            window=(int(every.start_ns[usual]), int(every.end_ns[usual])),
            words={"place": place, "of": of},
            remedy=_action(trace, listed, own, does),
            edit=saving.edit,
            error_ns=saving.error_ns,
            # Nothing that was recorded shows it.
            at_most="low",
        )


def _by_place(listed: ListedWaits) -> Groups:
    """Groups of the listed waits: by call and line, without a line by range."""
    pattern = np.where(listed.site.site.codes < 0, listed.pattern, -2)
    return groups.group(listed.site.site.codes, listed.api.codes, listed.site.hint.codes, pattern)


def _places(
    trace: Trace, listed: ListedWaits, cost: Costs, chosen: Sequence[int]
) -> Iterator[tuple[Integers, SampledLine | None]]:
    """Yield the listed waits of each finding, and their sampled line where no mark names a line.

    `chosen` are groups of them, see `_by_place`.

    Waits of one call that were sampled at one line are one finding, whatever range they are in.
    """
    without_line, each = listed.site.site.codes < 0, _by_place(listed)
    lines: dict[tuple[int, int, str, int], tuple[list[Integers], SampledLine]] = {}
    for number in chosen:
        own = np.flatnonzero((each.ids == number) & cost.steady)
        first = int(own[0])
        sampled = sampled_line(trace, listed.row[own]) if without_line[first] else None
        if sampled is None:
            yield own, None
            continue
        call = int(listed.api.codes[first]), int(listed.site.hint.codes[first])
        of_line, _ = lines.setdefault((*call, sampled.file, sampled.line), ([], sampled))
        of_line.append(own)
    for of_line, sampled in lines.values():
        yield np.sort(np.concatenate(of_line)), sampled


def _costs(trace: Trace, listed: ListedWaits) -> Costs:
    every, gaps, cost = waits(trace), every_gap(trace), stalls(trace)
    counted = ~gaps.one_time & ~np.isin(gaps.device, list(unknown_idle(trace)))
    idle = cost.idle_ns(counted)[listed.row]
    drained = cost.idle_ns(counted & (gaps.cause == SYNC_DRAIN))[listed.row]
    start, end, process = (a[listed.row] for a in (every.start_ns, every.end_ns, every.process))
    warm_up = (end < warm_up_end_ns(trace)) | in_warm_up_range(trace, process, start)
    at_stake = np.where(listed.site.site.codes >= 0, idle, drained)
    return Costs(idle, drained, at_stake, ~warm_up | (idle > 0))


def _claim(
    trace: Trace, listed: ListedWaits, cost: Costs, own: Integers, sampled: SampledLine | None
) -> TimeClaim:
    """The claim on listed waits of one call site; its evidence is the costliest wait."""
    at_stake_ns = int(cost.at_stake_ns[own].sum())
    first = int(own[np.argmax(cost.at_stake_ns[own])])
    every, rows = waits(trace), listed.row[own]
    place, values = _place(trace, listed, first, sampled)
    values |= {"idle_ns": at_stake_ns, "calls": len(own)}
    values["wait_ns"] = int(every.duration_ns[rows].sum())
    # A call that itself held the launch back, such as an allocation, has no idle time after it.
    drains = 2 * int(cost.drained_ns[own].sum()) >= at_stake_ns
    of, called = _called(trace, listed, own, first)
    values |= called
    words = {"place": place, "of": of, "when": "after" if drains else "during"}
    does = CallKind(int(every.does[listed.row[first]]))
    remedy, saving = _action(trace, listed, own, does), _saving(trace, rows, does)
    saved_ns = at_stake_ns if saving is None else saving.saved_ns
    after = _after_waits(trace, rows)
    if after and after.idle_ns > at_stake_ns:
        # The CPU would be ahead of that, too, but for as long as the GPU has other work.
        saved_ns, saving, remedy = min(saved_ns, at_stake_ns), None, _AFTER_IT
        values["after_ns"] = after.idle_ns
        words["why"] = CAUSES[after.cause].lost or CAUSES[after.cause].idle
    elif saved_ns > _MORE * at_stake_ns:
        words["later"] = "later launches"
    by_rows = _copies_rows(trace, rows)
    if by_rows:
        remedy = by_rows
    caused, gaps, span_ns = _caused_by(trace, rows), every_gap(trace), stall_span_ns(trace)
    gap = typical_gap(trace, gaps, caused) if caused.any() else 0
    return TimeClaim(
        _subject(listed, first, sampled),
        values,
        "sites",
        listed.cells(first),
        saved_ns=saved_ns,
        span_ns=span_ns,
        window=(int(gaps.start_ns[gap]), int(gaps.end_ns[gap])),
        lost=wording.lost_in(gaps, caused),
        # One cause with the copies that wait, and one remedy.
        cause=CAUSES[COPY_WAIT].name if by_rows else "",
        words=words,
        # What it refers to comes before it: that takes longer, and counts no more than this.
        general=remedy == _AFTER_IT,
        remedy=remedy,
        saving="about" if saving else "at-most",
        severity=severity_of_part(saved_ns, at_stake_ns, span_ns) or "info",
        edit=saving.edit if saving else None,
        error_ns=saving.error_ns if saving else None,
    )


def _copies_rows(trace: Trace, rows: Integers) -> str:
    """The remedy for waits of which most copy the rows of an array one by one; else empty."""
    ops, calls = operations(trace), waits(trace).call[rows]
    copying = ops.call[copies.copies_of_rows(trace) & ops.launched]
    mostly = 2 * np.count_nonzero(groups.isin(calls, copying)) > len(calls)
    return wording.rows_at_once(trace) if mostly else ""


def _saving(trace: Trace, rows: Integers, does: CallKind) -> Gain | None:
    """What the program gains without these waits, where they can be left out of a replay.

    Bytes that a call moves are moved by any other call, too, and code is loaded once.
    """
    calls = waits(trace).call[rows]
    if does == CallKind.ALLOCATE:
        return savings.of_calls(trace, calls)
    cost, steady = stalls(trace), ~every_gap(trace).one_time
    staged_ns = cost.idle_ns(steady & (every_gap(trace).cause == COPY_WAIT))[rows].sum()
    if does in _ACTIONS or 2 * staged_ns > cost.idle_ns(steady)[rows].sum():
        return None
    return savings.of_waits(trace, calls)


class _After(NamedTuple):
    cause: int
    idle_ns: int


def _after_waits(trace: Trace, rows: Integers) -> _After | None:
    """The cause of most other idle time in the gaps that these waits began, and that time."""
    every, caused = every_gap(trace), _caused_by(trace, rows)
    drained = caused & (every.cause == SYNC_DRAIN)
    others = np.isin(every.gap, every.gap[drained]) & ~caused & ~every.one_time
    if not others.any():
        return None
    idle_ns = every.by_cause(others)
    most = int(np.argmax(idle_ns))
    if most == LAUNCH_LATE and idle_ns[most] < _RELAUNCH_NS * every.count(others):
        # That is what the next launch takes, which the CPU would have done before without the wait.
        return None
    return _After(most, int(idle_ns[most]))


def _place(
    trace: Trace, listed: ListedWaits, number: int, sampled: SampledLine | None
) -> tuple[str, dict[str, Cell]]:
    """The place of a wait as the subject of a sentence, and the names in it."""
    cells, source = listed.cells(number), listed.site.source[number]
    if cells["call_site"]:
        values = {"call_site": cells["call_site"], "source": source, "api": cells["api"]}
        return "{call_site}, `{source}`," if source else "{call_site}", values
    what = "{hint} ({api})" if cells["hint"] else "{api}"
    path = None if cells["range_path"] == UNATTRIBUTED else str(cells["range_path"])
    del cells["call_site"]
    if sampled:
        values = {"line": sampled.place, "function": sampled.function}
        of = "" if sampled.function in UNNAMED_FUNCTIONS else " in {function}"
        return f"{what} at {{line}}{of}", {**cells, **values}
    return what + wording.inside(trace, path, "range_path"), cells


def _called(
    trace: Trace, listed: ListedWaits, own: Integers, number: int
) -> tuple[str, dict[str, Cell]]:
    """What the calls of a line go to, and where a library waits, as a template and its values.

    What the line shows itself, such as `.item()`, is not said again.
    """
    site, hint = listed.site, listed.site.hint[number]
    if not site.site[number]:
        return "", {}
    method = str(hint).rpartition(".")[2]
    if not hint or not site.source[number] or method in str(site.source[number]):
        return " to {api}", {}
    library = sampled_library(trace, listed.row[own])
    where = " in {library}" if library else ""
    return f" to {{api}}, by {{hint}}{where}", {"hint": hint, "library": library}


def _subject(listed: ListedWaits, number: int, sampled: SampledLine | None) -> Subject:
    """The line of a wait, or the call where no line is known."""
    if sampled:
        return sampled.subject
    file, line = listed.site.file[number], int(listed.site.line[number])
    if listed.site.site[number] is None or file is None:
        return Subject("call", str(listed.api[number]))
    return Subject("line", f"{file}:{line}", file, line)


def _caused_by(trace: Trace, rows: Integers) -> Mask:
    """True for the steady parts, of every_gap, that one of these waits caused."""
    return ~every_gap(trace).one_time & np.isin(stalls(trace).wait, rows)


def _action(trace: Trace, listed: ListedWaits, own: Integers, does: CallKind) -> str:
    if does == CallKind.ALLOCATE:
        # The remedy for calls that allocate or free memory.
        keep = " (no torch.cuda.empty_cache in the loop)" if framework(trace) == "torch" else ""
        if len(own) == 1:
            return (
                f"If every step does this, allocate before the loop and keep "
                f"freed memory{keep}. A pool does this once, when it first grows."
            )
        return f"Allocate before the loop or through a pool, and keep freed memory in it{keep}."
    if does in _ACTIONS:
        return _ACTIONS[does]
    steady, cost = ~every_gap(trace).one_time, stalls(trace)
    rows = listed.row[own]
    idle = cost.idle_ns(steady)[rows]
    uploads = int(cost.idle_ns(steady & at_uploads(trace))[rows].sum())
    unread = int(idle[waits_for_no_result(trace)[rows]].sum())
    total = int(idle.sum())
    if 2 * uploads > total:
        return f"{wording.early_uploads(trace)}, in few large copies."
    control = remedy(trace, listed.pattern[own], idle)
    if control:
        return control
    if 2 * unread > total:
        if copies.uses_managed_memory(trace):
            return _MANAGED
        return _ORDERS if _orders_streams(trace, rows) else terms(trace).no_wait or _NOTHING_READ
    return f"Read results on the CPU less often, {terms(trace).later_reads}."


def _orders_streams(trace: Trace, rows: Integers) -> bool:
    """Whether most idle time of these waits lies between work of different streams of a GPU."""
    every, stream = every_gap(trace), operations(trace).stream
    caused = _caused_by(trace, rows)
    changes = caused & (stream[every.before] != stream[every.after])
    return 2 * int(every.idle_ns[changes].sum()) > int(every.idle_ns[caused].sum())

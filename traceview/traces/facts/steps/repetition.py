"""Steps of a program without ranges: the repetition of its launch sequence.

A loop launches the same kernels in the same order in every pass; a pass is a step.

1. An *anchor* is a kind of launch that recurs at a regular distance. Each anchor cuts the sequence
   into passes, and each pass is compared with the next, launch by launch from the anchor on.
2. The coverage of an anchor is the share of all launches that agree so. Extra launches at the end
   of some passes (logging every nth step) agree with nothing, and shift nothing.
3. Anchors of higher coverage win; of equally good ones that of the shortest passes, so that two
   steps are not taken for one. Layers inside a step cover less than steps do: embeddings, heads
   and sampling stand between.
4. Passes that may be layers of a step are grouped into steps, or count for nothing (`nesting`).
   Regular pauses that do not fit the other launches between passes group nothing.
5. Where regular passes are less than half of all launches, kinds are looked for that occur once in
   each pass, whatever else it launches (`once_per_pass`).
6. A program that launches one kernel again and again has passes from wait to wait, or where it
   never waits passes of one launch, if the CPU pauses long between them.
7. Where optimizer kernels run, a step ends with the last of them. Otherwise it begins as far before
   its anchor as the CPU pauses longest, or at the anchor.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.base.records import record
from traceview.base.tables import Integers, Mask, arrays
from traceview.traces.facts.steps import nesting

# Passes of a loop whose launches change from one to the next: sequences that grow, batches
# padded.
#
# Libraries choose other kernels for other shapes, and no distance repeats. What does not change
# is launched once in every pass: several kinds that occur equally often and take turns.

_LEAST_KINDS = 5
"""So many kinds must take turns: fewer do so by chance, or where a program logs."""
_MOST_TRIED = 8
_LEAST_COVERED = 0.5


def once_per_pass(kind: Integers, least: int) -> tuple[Integers, int] | None:
    """The launch that begins each of at least `least` passes, and the launch that ends the last.

    Kinds that occur equally often form a group; the largest groups are tried for kinds that take
    turns through most of the launches. None if no group has such kinds.
    """
    counts = np.bincount(kind)
    numbers, kinds = np.unique(counts[counts >= least], return_counts=True)
    order = np.argsort(-kinds, kind="stable")[:_MOST_TRIED]
    for number in numbers[order][kinds[order] >= _LEAST_KINDS].tolist():
        of = np.flatnonzero(counts == number)
        launches = np.flatnonzero(np.isin(kind, of))
        by_kind = launches[np.argsort(kind[launches], kind="stable")].reshape(len(of), number)
        by_kind = by_kind[np.argsort(by_kind[:, 0], kind="stable")]
        following = np.append(by_kind[0, 1:], len(kind))
        # Kinds that occur once per launch of the first kind.
        turns = by_kind[((by_kind >= by_kind[0]) & (by_kind < following)).all(axis=1)]
        end = int(turns[:, -1].max()) + 1
        if len(turns) >= _LEAST_KINDS and end - turns[0, 0] >= _LEAST_COVERED * len(kind):
            return turns[0], end
    return None


LEAST_STEPS = 4
"""Fewer passes are no loop that a reader counts time in."""
_LEAST_COVERAGE = 0.2
# Regular passes of fewer launches are a part of a loop whose launches change.
_LEAST_REGULAR = 0.5
_LEAST_SINGLE = 0.8
_LEAST_SEEN = 10
"""So many passes in a row that the host sees are steps, if they are half of all: of the layers of a
step it sees one."""
_APART_NS = 100_000
"""Layers of one call, and launches of one loop over data, follow each other more closely."""
_AS_GOOD = 0.01
_AGREEING = 0.7
_MOST_ANCHORS = 48
_MOST_KINDS = 4096
_SHORTEST = 2
_MOST_COMPARED = 1 << 18
_IRREGULAR = 0.25
# A pause counts as the seam of a step if it is that much longer than the median pause.
_SEAM = 3.0
_MOST_PASSES = 256
_BRIDGED = 2
_OTHERS = 0.25
_OPTIMIZERS_PER_PASS = (2, 3, 4)
_UNLIKE, _LIKE = 0.2, 0.05
# Launches of one optimizer step stand at most so far apart.
_BURST = 8
# Of the passes: every fifth or third where a network's stages are taken for steps.
_OFTEN = 0.1


@record
class Repetition:
    """The passes of a loop: `first` is the launch that begins each, `end` follows the last one.

    `lag` is the number of launches per pass, the median. Launches before `first[0]` and from `end`
    on are outside the loop.
    """

    first: Integers
    end: int
    lag: int


def regular_stretches(kind: Integers, work_ns: Integers) -> list[tuple[int, int]]:
    """Begin and end of the stretches in which some kind recurs regularly, most work first.

    No two distances of a kind that follow each other differ by more than twice. Programs that run
    one variant after the other launch the same memset in each: these may be one stretch.
    """
    order = np.argsort(kind, kind="stable")
    distance, same = np.diff(order), np.diff(kind[order]) == 0
    shorter, longer = (f(distance[:-1], distance[1:]) for f in (np.minimum, np.maximum))
    regular = same[:-1] & same[1:] & (longer <= 2 * shorter + _BRIDGED)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], regular.astype(np.int8), [0]])))
    opens, closes = edges.reshape(-1, 2).T
    enough = closes - opens >= LEAST_STEPS - 2
    opens, closes = opens[enough], closes[enough]
    first, end = order[opens], np.minimum(order[closes + 1] + distance[closes], len(kind))
    done_ns = np.append(0, np.cumsum(work_ns))
    most_first = np.argsort(done_ns[first] - done_ns[end], kind="stable")
    stretches = zip(first[most_first].tolist(), end[most_first].tolist(), strict=True)
    return [*dict.fromkeys(stretches)][:_MOST_TRIED]


@record
class _Anchor:
    """A kind of launch that may occur once in each pass: its positions and their usual distance."""

    at: Integers
    lag: int


def find_repetition(
    kind: Integers,
    pause_ns: Integers,
    optimizer: Mask | None = None,
    marked: Mask | None = None,
    of_model: bool = True,
) -> Repetition | None:
    """The loop in a sequence of launches; None where nothing repeats often enough.

    `kind` numbers what each launch launches, `pause_ns` is the CPU time before it since the last
    launch, `optimizer` is True for the kernels of an optimizer, `marked` for launches that the host
    sees: copies from or to it, CUDA graphs, and launches after it waited for the GPU. All
    have shape (launches,). Without `of_model` no pass is a layer of something.
    """
    if len(kind) < LEAST_STEPS * _SHORTEST:
        return None
    loop = _several_launches(kind, pause_ns, optimizer, marked, of_model)
    if loop is not None or marked is None:
        return loop
    return _of_one_kind(kind, pause_ns, marked)


def _of_one_kind(kind: Integers, pause_ns: Integers, marked: Mask) -> Repetition | None:
    """The passes of a loop that launches nothing but one kind."""
    begins = np.flatnonzero(np.append(True, np.diff(kind) != 0))
    ends = np.append(begins[1:], len(kind))
    longest = int(np.argmax(ends - begins))
    first, end = int(begins[longest]), int(ends[longest])
    if end - first < _LEAST_SINGLE * len(kind):
        return None
    seen = first + np.flatnonzero(marked[first:end])
    if len(seen) < 2:
        apart = arrays.median(pause_ns[first + 1 : end]) >= _APART_NS
        return _repetition(np.arange(first, end), end) if apart else None
    lag = int(arrays.median(np.diff(seen)))
    if np.mean(np.diff(seen) == lag) < _AGREEING:
        return None
    # The first pass comes before all waits.
    begins = np.append(first, seen) if seen[0] - first == lag else seen
    return _whole_passes(begins, end, lag)


def _several_launches(
    kind: Integers, pause_ns: Integers, optimizer: Mask | None, marked: Mask | None, of_model: bool
) -> Repetition | None:
    anchor = _best_anchor(kind, None if of_model else marked)
    lag = anchor.lag if anchor else 0
    if optimizer is not None and (passes := _between_optimizers(optimizer, lag)):
        return passes
    at, end = _longest_run(kind, anchor) if anchor else (kind[:0], 0)
    if lag * len(at) < _LEAST_REGULAR * len(kind) and marked is not None:
        # The launches of passes change. Those that the host sees are no layers.
        changing = once_per_pass(kind, LEAST_STEPS)
        if changing and nesting.mostly_marked(*changing, marked):
            return _repetition(*changing)
    if len(at) < LEAST_STEPS:
        return None
    passes = _whole_passes(_seams(at, pause_ns, lag), end, lag)
    passes = _not_layers(passes, kind, pause_ns, marked, of_model) if passes else None
    return _closed(passes, kind) if passes and not _are_parts(passes) else None


def _are_parts(passes: Repetition) -> bool:
    """Whether these are parts of passes that are too few to be a loop, such as 2 in each of 3.

    Most launches are then of few that take much longer, more often than an evaluation would.
    """
    length = np.diff(passes.first)
    longer = length > 2 * passes.lag
    return bool(np.mean(longer) > _OFTEN and 2 * length[longer].sum() > length.sum())


def _closed(passes: Repetition, kind: Integers) -> Repetition | None:
    """The passes without launches behind the last one: results read back, an evaluation.

    The last pass ends with the last launch that a usual pass has at the same place.
    """
    first, end = passes.first, passes.end
    usual = first[:-1][np.diff(first) == passes.lag]
    if not len(usual):
        return passes
    equal = kind[first[-1] : end] == kind[usual[-1] : usual[-1] + end - first[-1]]
    end = int(first[-1]) + int(np.flatnonzero(np.append(True, equal))[-1])
    return _whole_passes(first, end, passes.lag)


def _not_layers(
    passes: Repetition, kind: Integers, pause_ns: Integers, marked: Mask | None, of_model: bool
) -> Repetition | None:
    """The passes, or groups of them, where these are steps; None where that is not known."""
    first, end, lag = passes.first, passes.end, passes.lag
    if marked is not None and nesting.mostly_marked(first, end, marked):
        return passes
    group = nesting.grouping(first, lag, pause_ns)
    after = nesting.between_other_launches(first, lag)
    if group and after is not None and _conflict(group, first, after, lag):
        return _between(after, end, pause_ns)
    if group:
        begins = first[group.first :: group.passes] + group.offset
        return _whole_passes(begins, end, lag * group.passes)
    usual = first[np.append(np.diff(first), end - first[-1]) == lag][:_MOST_PASSES]
    if not len(usual):
        return passes
    layered = nesting.repeats_inside(kind[usual[0] : usual[0] + lag])
    if marked is not None and not layered:
        calls = nesting.in_equal_groups(first, lag, marked)
        if calls is not None:
            return _whole_passes(calls, end, int(arrays.median(np.diff(calls))))
    pauses = arrays.medians(pause_ns[usual[:, None] + np.arange(lag)], 0)
    if layered or float(pauses.max()) >= _SEAM * max(arrays.median(pauses), 1.0):
        return passes
    if after is None:
        return passes if not of_model else _seen(passes, marked) if marked is not None else None
    return _between(after, end, pause_ns)


def _seen(passes: Repetition, marked: Mask) -> Repetition | None:
    """The passes in a row that the host sees each of: a program warms up before it times them."""
    first, end = passes.first, passes.end
    begin, behind = nesting.longest_marked(first, end, marked)
    if behind - begin < max(_LEAST_REGULAR * len(first), _LEAST_SEEN):
        return None
    return _repetition(first[begin:behind], int(np.append(first, end)[behind]))


def _conflict(group: nesting.Grouping, first: Integers, after: Integers, lag: int) -> bool:
    """Whether pauses and other launches group the passes by numbers of which none holds the other.

    The pauses are then not the program's: Python collects garbage after so many objects. A few
    launches, such as to log something, group nothing.
    """
    passes = int(arrays.median(np.diff(np.searchsorted(first, after))))
    others = int(arrays.median(np.diff(after))) - passes * lag
    unlike = group.passes % passes and passes % group.passes
    return bool(unlike and others >= _OTHERS * lag)


def _between(after: Integers, end: int, pause_ns: Integers) -> Repetition | None:
    step = int(arrays.median(np.diff(after)))
    return _whole_passes(_seams(after, pause_ns, step), end, step)


def _best_anchor(kind: Integers, seen: Mask | None = None) -> _Anchor | None:
    """The anchor of the shortest passes among those of best coverage; None if all cover little.

    Where no model has layers, `seen` is True for the launches that the host sees. Passes that it
    sees each of are steps then, though every tenth prints a summary and every second goes through
    the directions in another order: both make longer passes that agree better.
    """
    some = kind[:_MOST_COMPARED]
    covered: list[tuple[float, _Anchor]] = []
    for anchor in _anchors(kind):
        at, share = anchor.at[anchor.at < len(some)], 0.0
        if len(at) >= LEAST_STEPS:
            # The share of all launches that agree with the next pass, in passes where most do.
            equal, compared = _agreement(some, at)
            share = float(equal[equal >= _AGREEING * compared].sum()) / len(some)
        covered.append((share, anchor))
    best = max((share for share, _ in covered), default=0.0)
    if best < _LEAST_COVERAGE:
        return None
    good = (anchor for share, anchor in covered if share >= best - _AS_GOOD)
    chosen = min(good, key=lambda anchor: anchor.lag)
    if seen is None:
        return chosen
    steps = [
        anchor
        for share, anchor in covered
        if share >= _AGREEING
        and chosen.lag % anchor.lag < _OTHERS * anchor.lag
        and nesting.mostly_marked(anchor.at, int(anchor.at[-1]) + anchor.lag, seen)
    ]
    return min([chosen, *steps], key=lambda anchor: anchor.lag)


def _anchors(kind: Integers) -> Iterator[_Anchor]:
    """For each period at which kinds of launches recur regularly, the most regular kind."""
    order = np.argsort(kind, kind="stable")
    opens = np.flatnonzero(np.append(True, np.diff(kind[order]) != 0))
    ends = np.append(opens[1:], len(order))
    recurring = np.flatnonzero(ends - opens >= LEAST_STEPS)
    best: dict[int, tuple[float, _Anchor]] = {}
    weight: dict[int, int] = {}
    # One median for each kind that recurs: a program has some hundreds.
    for number in recurring[:_MOST_KINDS]:
        at = order[opens[number] : ends[number]]
        distance = np.diff(at)
        lag = int(arrays.median(distance))
        odd = float(np.mean(np.abs(distance - lag) > max(2.0, 0.05 * lag)))
        if lag < _SHORTEST or odd > _IRREGULAR:
            continue
        weight[lag] = weight.get(lag, 0) + 1
        if lag not in best or odd < best[lag][0]:
            best[lag] = odd, _Anchor(at, lag)
    for lag in sorted(weight, key=weight.__getitem__, reverse=True)[:_MOST_ANCHORS]:
        yield best[lag][1]


def _agreement(kind: Integers, at: Integers) -> tuple[Integers, Integers]:
    """For each pass but the last: number of launches equal to the next pass's, and of all launches.

    A launch is compared with the launches that lie one pass length behind it, by the length of its
    own pass and of the next: those before an extra launch fit one length, those after it the other.
    """
    length = np.diff(at)
    following = np.append(length[1:], length[-1:])
    launch = np.arange(int(at[0]), int(at[-1]))
    equal = np.zeros(len(launch), bool)
    for distance in (length, following):
        compared = launch + np.repeat(distance, length)
        # The last pass may be cut off: launches beyond the end count as equal.
        equal |= (kind[np.minimum(compared, len(kind) - 1)] == kind[launch]) | (
            compared >= len(kind)
        )
    return np.add.reduceat(equal.astype(np.int64), at[:-1] - at[0]), length


def _longest_run(kind: Integers, anchor: _Anchor) -> tuple[Integers, int]:
    """The anchors of the longest stretch of passes that agree, and the launch that ends it.

    Two passes that differ (logging, an evaluation, the next prompt) do not end a stretch.
    """
    equal, compared = _agreement(kind, anchor.at)
    good = (equal >= _AGREEING * compared) & (np.diff(anchor.at) <= 2 * anchor.lag)
    at_good = np.flatnonzero(good)
    near = np.diff(at_good) <= _BRIDGED + 1
    for first, last in zip(at_good[:-1][near], at_good[1:][near], strict=True):
        good[first:last] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[0], good.astype(np.int8), [0]])))
    if not len(edges):
        return anchor.at[:0], 0
    begins, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - begins))
    at = anchor.at[begins[longest] : ends[longest] + 1]
    following = anchor.at[ends[longest] + 1 :][:1]
    end = min(int(at[-1]) + anchor.lag, *map(int, following), len(kind))
    return at, end


def _between_optimizers(optimizer: Mask, lag: int) -> Repetition | None:
    """Passes that end with the last optimizer kernel of each.

    `lag` is the distance at which launches repeat, 0 if unknown: it tells a pass from a pause
    within one optimizer step.
    """
    at = np.flatnonzero(optimizer)
    apart = np.diff(at)
    far = apart[apart > _BURST]
    if len(far) < LEAST_STEPS - 1:
        return None
    after = at[np.append(apart > 0.3 * max(arrays.median(far), lag), True)] + 1
    after = _grouped(after)
    if len(after) < LEAST_STEPS:
        return None
    length = int(arrays.median(np.diff(after)))
    # The first pass began before its optimizer ran: where is not known, so it takes the median.
    first = np.append(max(int(after[0]) - length, 0), after[:-1])
    return _repetition(first, int(after[-1]))


def _grouped(after: Integers) -> Integers:
    """The ends of whole passes, where a pass runs several optimizers in turn (two, of a GAN).

    Then the distances between their bursts repeat after that many, and differ before.
    """
    distance = np.diff(after).astype(float)
    for several in _OPTIMIZERS_PER_PASS:
        if len(distance) < LEAST_STEPS * several:
            break
        usual = max(arrays.median(distance), 1.0)
        apart = [arrays.median(np.abs(distance[n:] - distance[:-n])) for n in (1, several)]
        if apart[0] > _UNLIKE * usual and apart[1] < _LIKE * usual:
            # The last burst of the program ends a pass.
            return after[(len(after) - 1) % several :: several]
    return after


def _seams(at: Integers, pause_ns: Integers, lag: int) -> Integers:
    """Each anchor moved back to the CPU's longest pause; the anchors if no pause stands out."""
    some = at[at >= lag][:_MOST_PASSES]
    if not len(some):
        return at
    pauses = arrays.medians(pause_ns[some[:, None] - np.arange(lag)], 0)
    longest = int(np.argmax(pauses))
    if pauses[longest] < _SEAM * max(arrays.median(pauses), 1.0):
        return at
    return (at - longest)[at >= longest]


def _whole_passes(begins: Integers, end: int, lag: int) -> Repetition | None:
    """The passes from each begin to the next, and a last one if it is at least half as long."""
    # A pass may begin some launches after its anchor, which the last one may not reach.
    begins = begins[begins < end]
    if len(begins) and end - int(begins[-1]) < 0.5 * lag:
        begins, end = begins[:-1], int(begins[-1])
    return _repetition(begins, end)


def _repetition(first: Integers, end: int) -> Repetition | None:
    """The passes that begin at `first`, ascending and below `end`; None for too few of them."""
    if len(first) < LEAST_STEPS:
        return None
    lag = int(arrays.median(np.diff(np.append(first, end))))
    return Repetition(first.astype(np.int64), end, lag)

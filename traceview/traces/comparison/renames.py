"""Renamed kernels: another kernel of the same class at the same place in the sequence of a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from traceview.base.records import record
from traceview.traces.comparison.figures import PartKey, RunFigures, SidePart, StepPart, part_key
from traceview.traces.facts.kernel_classes import KernelClass

# Alignment of two sequences: which elements of one correspond to which of the other.

MOST_EDITS = 1000
"""Sequences that differ in more elements are not aligned: the work grows with the square."""


def align(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int]] | None:
    """The pairs of equal elements of a longest common subsequence, ascending.

    None where more than MOST_EDITS elements are to be removed or added. Myers, An O(ND) difference
    algorithm and its variations, 1986.
    """
    reach: dict[int, int] = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(min(len(before) + len(after), MOST_EDITS) + 1):
        trail.append({k: reach[k] for k in range(-edits - 1, edits + 2) if k in reach})
        for diagonal in range(-edits, edits + 1, 2):
            x = _start(reach, diagonal, edits)
            while (
                x < len(before) and x - diagonal < len(after) and before[x] == after[x - diagonal]
            ):
                x += 1
            reach[diagonal] = x
            if x >= len(before) and x - diagonal >= len(after):
                return _walk_back(trail, len(before), len(after))
    return None


def _comes_down(reach: dict[int, int], diagonal: int, edits: int) -> bool:
    """Whether a path enters a diagonal by an added element from above, not by a removed one."""
    above, left = reach.get(diagonal + 1, -1), reach.get(diagonal - 1, -1)
    return diagonal == -edits or (diagonal != edits and left < above)


def _start(reach: dict[int, int], diagonal: int, edits: int) -> int:
    if _comes_down(reach, diagonal, edits):
        return reach.get(diagonal + 1, -1)
    return reach.get(diagonal - 1, -1) + 1


def _walk_back(trail: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs = []
    for edits in range(len(trail) - 1, -1, -1):
        reach, diagonal = trail[edits], x - y
        start = _start(reach, diagonal, edits)
        while x > start:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        if edits:
            x, y = (x, y - 1) if _comes_down(reach, diagonal, edits) else (x - 1, y)
    return pairs[::-1]


RENAMED_KINDS = ("kernel", "communication")
_UNKNOWN = (KernelClass.OTHER.label, KernelClass.AUTOTUNER.label)

_MOST_CALLS = 10
"""Of a kernel of no known class, as a multiple of those of the kernel that it replaces."""


@record
class StepSequence:
    """The kernels of a typical step of one side, in the order in which the GPU ran them.

    Copies and memsets are left out, as libraries put some of their own before kernels.
    """

    keys: tuple[PartKey, ...]
    parts: tuple[StepPart, ...]
    time_ns: tuple[int, ...]
    steps: int = 1

    @classmethod
    def of(cls, runs: Sequence[RunFigures]) -> StepSequence:
        """The sequence of the run with the median step."""
        run = sorted(runs, key=lambda run: run.mean_step_ns)[len(runs) // 2]
        kept = [
            (run.parts[number], time_ns)
            for number, time_ns in zip(run.sequence, run.sequence_ns, strict=True)
            if run.parts[number].kind in RENAMED_KINDS
        ]
        parts = tuple(part for part, _ in kept)
        return cls(
            tuple(map(part_key, parts)), parts, tuple(time_ns for _, time_ns in kept), run.steps
        )


@record
class Rename:
    """Calls of a part `before` that became calls of another part, `after`, and their time."""

    before: PartKey
    after: PartKey
    calls: int
    before_ns: int
    after_ns: int


def find_renames(
    before: StepSequence,
    after: StepSequence,
    matched: Mapping[PartKey, int],
    left: frozenset[PartKey],
) -> list[Rename]:
    """The kernels that replaced others.

    `matched` numbers the parts that are the same on both sides; `left` are the parts that only one
    side has, at least one of which is in each rename.
    """
    pairs = _aligned(before, after, matched, by_class=False)
    if pairs is None:
        pairs = _aligned(before, after, matched, by_class=True)
    if pairs is None:
        return []
    ends = [(-1, -1), *pairs, (len(before.keys), len(after.keys))]
    renames = list(pairs)
    for (x, y), (end_x, end_y) in pairwise(ends):
        renames += _replaced(before, after, range(x + 1, end_x), range(y + 1, end_y))
    return _counted(before, after, renames, left)


def _aligned(
    before: StepSequence, after: StepSequence, matched: Mapping[PartKey, int], *, by_class: bool
) -> list[tuple[int, int]] | None:
    """Pairs of positions of matched parts and, if `by_class`, of other parts of equal class.

    Without `by_class`, other parts are found between matched neighbours. Where nearly all kernels
    are unmatched, too few neighbours are left, and the class has to do. None if not alignable.
    """
    numbers: dict[object, int] = {}

    def number(key: PartKey, part: StepPart) -> int:
        other = (part.kind, part.group) if by_class else key
        name = ("same", matched[key]) if key in matched else other
        return numbers.setdefault(name, len(numbers))

    tokens = (list(map(number, side.keys, side.parts)) for side in (before, after))
    return align(*tokens)


def _replaced(
    before: StepSequence, after: StepSequence, removed: range, added: range
) -> Iterator[tuple[int, int]]:
    """Yield pairs of calls of one class between the same neighbours, in order.

    Where one side has more calls, as for a GEMM that became two kernels, its longest ones count.
    """
    ours, theirs = _by_class(before, removed), _by_class(after, added)
    for kind, rows in ours.items():
        others = theirs.get(kind, [])
        number = min(len(rows), len(others))
        longest = (
            sorted(sorted(own, key=lambda at: -side.time_ns[at])[:number])
            for side, own in ((before, rows), (after, others))
        )
        yield from zip(*longest, strict=True)


def _by_class(side: StepSequence, rows: range) -> dict[tuple[str, str], list[int]]:
    by_class: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for at in rows:
        by_class[side.parts[at].kind, side.parts[at].group].append(at)
    return dict(by_class)


def _counted(
    before: StepSequence,
    after: StepSequence,
    pairs: Sequence[tuple[int, int]],
    left: frozenset[PartKey],
) -> list[Rename]:
    renames: dict[tuple[PartKey, PartKey], Rename] = {}
    for x, y in pairs:
        key = old, new = before.keys[x], after.keys[y]
        if before.parts[x].kind not in RENAMED_KINDS or not {old, new} & left or old == new:
            continue
        so_far = renames.get(key, Rename(old, new, 0, 0, 0))
        renames[key] = replace(
            so_far,
            calls=so_far.calls + 1,
            before_ns=so_far.before_ns + before.time_ns[x],
            after_ns=so_far.after_ns + after.time_ns[y],
        )
    return [rename for rename in renames.values() if _is_sure(rename, before, after)]


def _is_sure(rename: Rename, before: StepSequence, after: StepSequence) -> bool:
    """Whether a rename is certain.

    A kernel of no known class is renamed only if all its calls became all calls of the other. A
    sequence may be cut, so the numbers of calls per step must be of the same order, too.
    """
    if rename.before[1] not in _UNKNOWN:
        return True
    if not before.keys.count(rename.before) == rename.calls == after.keys.count(rename.after):
        return False
    calls = [
        Fraction(side.parts[side.keys.index(key)].calls, side.steps)
        for side, key in ((before, rename.before), (after, rename.after))
    ]
    return max(calls) <= _MOST_CALLS * min(calls)


def portion(side: SidePart, sequence: StepSequence, calls: int, time_ns: int) -> SidePart:
    """Some of the calls of a part: as large a share of it as in the typical step."""
    key = part_key(side.part)
    rows = [at for at, other in enumerate(sequence.keys) if other == key]
    whole_ns = sum(sequence.time_ns[at] for at in rows)
    fraction = Fraction(time_ns, whole_ns) if whole_ns else Fraction(calls, len(rows))
    return replace(
        side, time_ns=side.time_ns * fraction, calls=side.calls * Fraction(calls, len(rows))
    )

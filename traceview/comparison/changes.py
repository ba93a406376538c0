"""The causes of a difference of runs, one sentence each, those that explain most first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from traceview import units
from traceview.comparison import wording
from traceview.comparison.comparison import PartDifference, RunComparison
from traceview.comparison.figures import StepPart
from traceview.records import record
from traceview.vocabulary.causes import CAUSE_NAMES, CAUSES, LAUNCH_LATE, SYNC_DRAIN

MOST_CHANGES = 6
_LEAST_CAUSE, _LEAST_MOVED, _LEAST_OF_STEP = 0.03, 0.1, 0.002
"""What moved by less, of the difference and of the step, gets no sentence. The first is for what
appeared, vanished or was configured otherwise."""
_LEAST_LEADING = 0.25
"""Of the difference, or of the largest cause if causes cancel: a cause of so much comes before what
merely takes longer."""
_LEAST_CALLS = 0.01
"""Of the calls: fewer more or less are those of a step cut by the window."""
_MOST_PLACES, _LEAST_PLACE, _ONE_PLACE = 3, 0.05, 0.9
"""Places of one cause, the share of it that one must have, and that of one that stands for all."""
_FEW, _MOST_OF_FEW = 3, 0.8
"""Changed kernels of a class are listed singly where so few account for so much of it."""
_TALLY = {
    "appeared": "new", "vanished": "gone", "renamed": "replaced",
    "reconfigured": "with another launch configuration",
}  # fmt: skip


@record
class RunChange:
    """One cause of a difference and its sentence: a part of the step, or all parts of one cause.

    The last of `main_changes` may be several causes.
    """

    parts: tuple[PartDifference, ...]
    text: str

    @property
    def delta_ns(self) -> Fraction:
        return _delta(self.parts)


def changes(comparison: RunComparison) -> list[RunChange]:
    """The causes of the difference, each with its sentence.

    Idle time of one cause is one change, wherever it is. What appeared, vanished or was configured
    otherwise comes before what merely takes longer, if it is a good part of the difference.
    """
    causes = [
        parts
        for parts in _causes(comparison.parts)
        if abs(_delta(parts)) >= _least(comparison, parts)
    ]
    if wording.is_noise(comparison):
        causes = [parts for parts in causes if not _only_moved(parts)]
    largest = max([abs(comparison.delta_ns), *(abs(_delta(parts)) for parts in causes)])
    causes.sort(key=lambda parts: (not _leads(parts, largest), -abs(_delta(parts))))
    _put_drain_first(comparison, causes)
    return [RunChange(parts, _text(comparison, parts)) for parts in causes]


def main_changes(comparison: RunComparison) -> list[RunChange]:
    """The first MOST_CHANGES changes and, as the last one, the sum of the others.

    A single other change takes no more room than a sum, so it is listed itself.
    """
    every = changes(comparison)
    listed, others = every[:MOST_CHANGES], every[MOST_CHANGES:]
    if len(others) < 2:
        return every
    parts = tuple(part for change in others for part in change.parts)
    return [*listed, RunChange(parts, f"… and {units.count(len(others))} more changes.")]


def _put_drain_first(comparison: RunComparison, causes: list[tuple[PartDifference, ...]]) -> None:
    """Put the drains of a synchronization before the late launches that it leads to."""
    idle = {parts[0].name: at for at, parts in enumerate(causes) if parts[0].kind == "idle"}
    late, drain = (idle.get(CAUSE_NAMES[cause], -1) for cause in (LAUNCH_LATE, SYNC_DRAIN))
    if 0 <= late < drain and _by_drain(comparison, causes[late]):
        causes.insert(late, causes.pop(drain))


def _by_drain(comparison: RunComparison, parts: Sequence[PartDifference]) -> bool:
    """Whether late launches came, or went, with the synchronizations of the step.

    A CPU that ran ahead of the GPU launches late once it waits for the GPU in each step.
    """
    times = [sum(side) for side in zip(*map(_times, parts), strict=True)]
    one_sided = min(times) <= max(times) * Fraction(_LEAST_CAUSE)
    if parts[0].name != CAUSE_NAMES[LAUNCH_LATE] or not one_sided:
        return False
    return any(
        count.name == "synchronizations"
        and (count.after > count.before) == (_delta(parts) > 0)
        and not min(count.before, count.after)
        for count in wording.changed_counts(comparison)
    )


def _causes(parts: Sequence[PartDifference]) -> Iterator[tuple[PartDifference, ...]]:
    """Yield the parts of each cause together, the largest part of a cause first."""
    causes: dict[object, list[PartDifference]] = defaultdict(list)
    for row, part in enumerate(sorted(parts, key=lambda part: -abs(part.delta_ns))):
        changed = part.kind == "kernel" and part.change != "same"
        key = part.name if part.kind == "idle" else part.group
        causes[(part.kind, key) if changed or part.kind == "idle" else row].append(part)
    for of_cause in causes.values():
        if of_cause[0].kind == "idle" or _is_scattered(of_cause):
            yield tuple(of_cause)
        else:
            yield from ((part,) for part in of_cause)


def _is_scattered(parts: Sequence[PartDifference]) -> bool:
    """Whether the _FEW largest parts, given first, leave much of the difference to the others."""
    sizes = [abs(part.delta_ns) for part in parts]
    return sum(sizes[:_FEW]) < sum(sizes) * Fraction(_MOST_OF_FEW)


def _delta(parts: Iterable[PartDifference]) -> Fraction:
    return sum((part.delta_ns for part in parts), Fraction(0))


def _least(comparison: RunComparison, parts: Sequence[PartDifference]) -> Fraction:
    share = _LEAST_MOVED if _only_moved(parts) else _LEAST_CAUSE
    of_difference = abs(comparison.delta_ns) * Fraction(share)
    return max(of_difference, comparison.before_ns * Fraction(_LEAST_OF_STEP), Fraction(1))


def _leads(parts: Sequence[PartDifference], largest: Fraction) -> bool:
    """Whether a cause other than a mere change of time is a good part of what moved."""
    return not _only_moved(parts) and abs(_delta(parts)) >= largest * Fraction(_LEAST_LEADING)


def _only_moved(parts: Sequence[PartDifference]) -> bool:
    """Whether the work and its number of calls, or the gaps, are unchanged but for their times."""
    if parts[0].kind != "idle":
        return all(map(_has_same_calls, parts))
    new, whole = _delta(part for part in parts if part.change != "same"), _delta(parts)
    return abs(new) * 2 < abs(whole) or (new > 0) != (whole > 0)


def _has_same_calls(part: PartDifference) -> bool:
    more = abs(part.calls_after - part.calls_before)
    return part.change == "same" and more <= part.calls_before * Fraction(_LEAST_CALLS)


def _text(comparison: RunComparison, parts: Sequence[PartDifference]) -> str:
    per = wording.PER_STEP if wording.has_steps(comparison) else ""
    if parts[0].kind == "idle":
        return f"{_idle_text(parts, per)}{_counted(comparison, parts, per)}"
    return wording.sentence(parts[0], per) if len(parts) == 1 else _class_text(parts, per)


def _idle_text(parts: Sequence[PartDifference], per: str) -> str:
    """The sentence of the whole cause, with the places that account for the difference."""
    delta = _delta(parts)
    whole = replace(
        parts[0],
        before_ns=sum((part.before_ns for part in parts), Fraction(0)),
        after_ns=sum((part.after_ns for part in parts), Fraction(0)),
    )
    # `parts` are largest first.
    if parts[0].delta_ns * delta > 0 and parts[0].delta_ns / delta >= Fraction(_ONE_PLACE):
        return wording.sentence(whole, per)
    least = abs(delta) * Fraction(_LEAST_PLACE)
    placed = [part for part in parts if part.place and abs(part.delta_ns) > least]
    texts = [
        f"{units.difference(float(part.delta_ns))}{wording.place_words(part.place)}"
        for part in placed[:_MOST_PLACES]
    ]
    text = wording.sentence(replace(whole, place=""), per)
    return f"{text.removesuffix('.')}: {', '.join(texts)}." if texts else text


def _counted(comparison: RunComparison, parts: Sequence[PartDifference], per: str) -> str:
    """A sentence on the count that rose or fell with a cause's idle time; empty without one."""
    if _by_drain(comparison, parts):
        more = _delta(parts) > 0
        return f" The CPU {'no longer' if more else 'now'} runs ahead of the GPU."
    name = next((each.counted for each in CAUSES if each.name == parts[0].name), "")
    for count in wording.changed_counts(comparison):
        if count.name == name and (count.after > count.before) == (_delta(parts) > 0):
            before, after = (_number(value) for value in (count.before, count.after))
            return f" {name.capitalize()}{per}: {after} instead of {before}."
    return ""


def _number(value: Fraction) -> str:
    return units.count(int(value) if value.denominator == 1 else float(value))


def _class_text(parts: Sequence[PartDifference], per: str) -> str:
    """A sentence on the change of many kernels of one class."""
    many = f"{units.count(len(parts))} {parts[0].group or 'other'} kernels"
    before, after = (float(sum(side)) for side in zip(*map(_times, parts), strict=True))
    tally = Counter(part.change for part in parts)
    if not before or not after:
        state = "new" if after else "gone"
        return f"{many} are {state}: {units.duration(before or after)}{per}."
    one, other = units.durations(before, after)
    number, _, unit = other.partition(" ")
    became = ", ".join(
        f"{units.count(count) if count < len(parts) else 'all'} {_TALLY[change]}"
        for change, count in tally.most_common()
    )
    return f"{many} take {number} instead of {one} {unit}{per}: {became}{_data_types(parts)}."


def _times(part: PartDifference) -> tuple[Fraction, Fraction]:
    return part.before_ns, part.after_ns


def _data_types(parts: Sequence[PartDifference]) -> str:
    """A clause on the one change of data type that makes up most of the difference, if any."""
    changed: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for part in parts:
        shapes = [side.shape.dtype if side and side.shape else None for side in _sides(part)]
        if shapes[0] and shapes[1] and shapes[0] != shapes[1]:
            changed[shapes[0], shapes[1]] += part.delta_ns
    for (before, after), delta in changed.items():
        if abs(delta) * 2 >= abs(_delta(parts)):
            return f"; data type {after} instead of {before}"
    return ""


def _sides(part: PartDifference) -> tuple[StepPart | None, StepPart | None]:
    return part.before, part.after

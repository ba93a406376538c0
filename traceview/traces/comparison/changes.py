"""The causes of a difference of runs, one sentence each, those that explain most first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from traceview.base import units
from traceview.base.records import record
from traceview.base.vocabulary.causes import CAUSE_NAMES, CAUSES, LAUNCH_LATE, SYNC_DRAIN
from traceview.traces.comparison import wording
from traceview.traces.comparison.comparison import PartDifference, RunComparison

MOST_CHANGES = 6
_LEAST_CAUSE, _LEAST_MOVED, _LEAST_OF_STEP = 0.03, 0.1, 0.002
"""What moved by less, of the difference and of the step, gets no sentence. The first is for what
appeared, vanished or was configured otherwise."""
_LEAST_LEADING = 0.25
"""Of the difference, or of the largest cause if causes cancel: a cause of so much comes before what
merely takes longer."""
_LEAST_CALLS = 0.01
"""Of the calls: fewer more or less are those of a step cut by the window."""
_MOST_PLACES, _LEAST_PLACE, _OTHER_PLACES = 3, 0.05, 0.005
"""Places of one cause, the share of it that one must have, and that of others which go unsaid: no
more than the rounding of its time."""
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
    difference_ns, noise = abs(comparison.delta_ns), wording.is_noise(comparison)
    least_ns = max(comparison.before_ns * Fraction(_LEAST_OF_STEP), Fraction(1))
    found = []
    for parts in _causes(comparison.parts):
        if parts[0].kind != "idle":
            moved = all(
                part.change == "same"
                and abs(part.calls_after - part.calls_before)
                <= part.calls_before * Fraction(_LEAST_CALLS)
                for part in parts
            )
        else:
            new, whole = _delta(part for part in parts if part.change != "same"), _delta(parts)
            moved = abs(new) * 2 < abs(whole) or (new > 0) != (whole > 0)
        share = Fraction(_LEAST_MOVED if moved else _LEAST_CAUSE)
        if abs(_delta(parts)) >= max(difference_ns * share, least_ns) and not (noise and moved):
            found.append((parts, moved))
    largest = max([difference_ns, *(abs(_delta(parts)) for parts, _ in found)])
    leading = largest * Fraction(_LEAST_LEADING)
    found.sort(key=lambda of: (of[1] or abs(_delta(of[0])) < leading, -abs(_delta(of[0]))))
    causes = [parts for parts, _ in found]
    # The drains of a synchronization come before the late launches that they lead to.
    idle = {parts[0].name: at for at, parts in enumerate(causes) if parts[0].kind == "idle"}
    late, drain = (idle.get(CAUSE_NAMES[cause], -1) for cause in (LAUNCH_LATE, SYNC_DRAIN))
    if 0 <= late < drain and _by_drain(comparison, causes[late]):
        causes.insert(late, causes.pop(drain))
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


def _by_drain(comparison: RunComparison, parts: Sequence[PartDifference]) -> bool:
    """Whether late launches came, or went, with the synchronizations of the step.

    A CPU that ran ahead of the GPU launches late once it waits for the GPU in each step.
    """
    before, after = _times(parts)
    one_sided = min(before, after) <= max(before, after) * Fraction(_LEAST_CAUSE)
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
        # Few kernels of a class, the largest of which leave little of the difference to the others,
        # are listed singly.
        sizes = [abs(part.delta_ns) for part in of_cause]
        scattered = sum(sizes[:_FEW]) < sum(sizes) * Fraction(_MOST_OF_FEW)
        if of_cause[0].kind == "idle" or scattered:
            yield tuple(of_cause)
        else:
            yield from ((part,) for part in of_cause)


def _delta(parts: Iterable[PartDifference]) -> Fraction:
    return sum((part.delta_ns for part in parts), Fraction(0))


def _text(comparison: RunComparison, parts: Sequence[PartDifference]) -> str:
    per = wording.PER_STEP if wording.has_steps(comparison) else ""
    if parts[0].kind == "idle":
        return f"{_idle_text(parts, per)}{_counted(comparison, parts, per)}"
    return wording.sentence(parts[0], per) if len(parts) == 1 else _class_text(parts, per)


def _idle_text(parts: Sequence[PartDifference], per: str) -> str:
    """The sentence of the whole cause, with the places that account for the difference."""
    delta, (before, after) = _delta(parts), _times(parts)
    whole = replace(parts[0], before_ns=before, after_ns=after)
    # `parts` are largest first. The times of a cause are those of one place only if all of it is.
    others = sum((part.before_ns + part.after_ns for part in parts[1:]), Fraction(0))
    if others <= (before + after) * Fraction(_OTHER_PLACES):
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
    name = next((cause.counted for cause in CAUSES if cause.name == parts[0].name), "")
    for count in wording.changed_counts(comparison):
        if count.name == name and (count.after > count.before) == (_delta(parts) > 0):
            before, after = wording.number(count.before), wording.number(count.after)
            return f" {name.capitalize()}{per}: {after} instead of {before}."
    return ""


def _class_text(parts: Sequence[PartDifference], per: str) -> str:
    """A sentence on the change of many kernels of one class."""
    many = f"{units.count(len(parts))} {parts[0].group or 'other'} kernels"
    before, after = _times(parts)
    if not before or not after:
        state = "new" if after else "gone"
        return f"{many} are {state}: {units.duration(float(before or after))}{per}."
    tally = Counter(part.change for part in parts)
    became = ", ".join(
        f"{units.count(count) if count < len(parts) else 'all'} {_TALLY[change]}"
        for change, count in tally.most_common()
    )
    times = wording.instead(before, after)
    return f"{many} take {times}{per}: {became}{_data_types(parts)}."


def _times(parts: Sequence[PartDifference]) -> tuple[Fraction, Fraction]:
    """The time of the parts on both sides."""
    zero = Fraction(0)
    return sum((p.before_ns for p in parts), zero), sum((p.after_ns for p in parts), zero)


def _data_types(parts: Sequence[PartDifference]) -> str:
    """A clause on the one change of data type that makes up most of the difference, if any."""
    changed: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for part in parts:
        before, after = (
            side.shape.dtype if side and side.shape else None for side in (part.before, part.after)
        )
        if before and after and before != after:
            changed[before, after] += part.delta_ns
    for (before, after), delta in changed.items():
        if abs(delta) * 2 >= abs(_delta(parts)):
            return f"; data type {after} instead of {before}"
    return ""

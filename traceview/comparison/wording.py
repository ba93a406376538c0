"""Sentences about a comparison of runs: the first line, a part that changed, what is not known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from traceview import units
from traceview.comparison.comparison import (
    CountDifference,
    EnvironmentDifference,
    PartDifference,
    RunComparison,
)
from traceview.comparison.figures import KernelShape
from traceview.vocabulary.causes import sits_idle

PER_STEP = " per step"
_LEAST_OF_PART = 0.1
"""Of a part's difference: calls or time per call that account for less are not mentioned."""
_LEAST_COUNT, _LEAST_PER_STEP = 0.01, 0.05
_MOST_SHAPE_CHANGES = 2
_SOURCE_LINE = re.compile(r":\d+$")

_ENVIRONMENT: Mapping[str, str] = {
    "gpu": "GPU",
    "devices": "GPUs",
    "other_processes": "other processes on the GPU",
    "sm_clock_mhz": "SM clock (MHz)",
    "memory_clock_mhz": "memory clock (MHz)",
    "power_limit_w": "power limit (W)",
    "max_sm_clock_mhz": "maximum SM clock (MHz)",
    "clock_limits": "SM clock held down by",
    "temperature_c": "GPU temperature (°C)",
    "cuda": "CUDA",
    "recorder_options": "what was recorded",
}

_OTHER_CALLS, _MOST_OF_WORK = 0.03, 0.8


def headline(comparison: RunComparison) -> str:
    """The first line: faster or slower by how much per step, and how sure that is."""
    before, after = comparison.before_ns, comparison.after_ns
    delta, certainty = comparison.delta_ns, comparison.certainty
    if not delta:
        return f"No difference: {units.duration(float(before))} {_per(comparison)} on both sides."
    one, other = units.durations(float(before), float(after))
    number, _, unit = other.partition(" ")
    mean = "mean " if has_steps(comparison) else ""
    times = f"{mean}{number} instead of {one} {unit} {_per(comparison)}"
    moved = f"{_direction(before, after)}: {times} ({units.difference(float(delta))}"
    if certainty.basis != "runs" or certainty.low_ns is None:
        return f"{moved}). {_other_work(comparison) or _not_known(comparison)}"
    if not certainty.is_certain:
        moved = f"No difference beyond the noise of the runs: {moved.partition(': ')[2]}"
    runs = f"{certainty.runs_before} and {certainty.runs_after} runs"
    return f"{moved}{_interval(comparison)}, {runs})."


def _direction(before: Fraction, after: Fraction) -> str:
    if not before:
        return "slower"
    share = float((after - before) / before) * 100
    if share > 100:
        return f"{units.quantity('factor', float(after / before))} as long"
    if share <= -50 and after:
        return f"{units.quantity('factor', float(before / after))} as fast"
    return f"{units.percent(abs(share))} {'slower' if share > 0 else 'faster'}"


def _per(comparison: RunComparison) -> str:
    return "per step" if has_steps(comparison) else "of steady GPU time"


def has_steps(comparison: RunComparison) -> bool:
    """Whether the times are per step, on both sides."""
    return all(run.has_steps for run in (*comparison.before, *comparison.after))


def _interval(comparison: RunComparison) -> str:
    low, high = comparison.certainty.low_ns, comparison.certainty.high_ns
    if low is None or high is None:
        return ""
    level = units.count(round(comparison.certainty.level * 100))
    lower, upper = units.difference(low) or "0", units.difference(high) or "0"
    number, _, unit = lower.rpartition(" ")
    lower = number if upper.endswith(f" {unit}") else lower
    return f", {level} % interval {lower} to {upper}"


def _other_work(comparison: RunComparison) -> str:
    """A note that the recordings hold different amounts of work; empty where they do not.

    Without steps a recording that was cut after some time holds as many passes as fit into it.
    """
    kernels = [
        (float(part.calls_after / part.calls_before), float(part.before_ns))
        for part in comparison.parts
        if part.kind == "kernel" and part.calls_before and part.calls_after
    ]
    whole_ns = sum(time_ns for _, time_ns in kernels)
    if has_steps(comparison) or not whole_ns:
        return ""
    fewer = sum(time_ns for factor, time_ns in kernels if factor < 1 - _OTHER_CALLS)
    more = sum(time_ns for factor, time_ns in kernels if factor > 1 + _OTHER_CALLS)
    if max(fewer, more) < _MOST_OF_WORK * whole_ns:
        return ""
    factor = sum(factor * time_ns for factor, time_ns in kernels) / whole_ns
    return (
        f"But most kernels run {units.quantity('factor', factor)} as often: the recordings hold "
        "different amounts of work. Compare the times per call, or record as many steps."
    )


def _not_known(comparison: RunComparison) -> str:
    before, after = len(comparison.before), len(comparison.after)
    if is_noise(comparison):
        return "Less than the scatter of the steps: no difference is shown."
    if before == after == 1:
        return "One run per side: not known whether this is noise; counts are exact."
    return f"{before} and {after} runs: too few to tell it from noise; counts are exact."


def is_noise(comparison: RunComparison) -> bool:
    """Whether the interval, over runs or steps, contains zero."""
    low, high = comparison.certainty.low_ns, comparison.certainty.high_ns
    return low is not None and high is not None and low <= 0 <= high


def sentence(part: PartDifference, per: str = PER_STEP) -> str:
    """A sentence on the change of one part; `per` names the unit of calls and times (a step)."""
    return _idle_sentence(part, per) if part.kind == "idle" else _work_sentence(part, per)


def _idle_sentence(part: PartDifference, per: str) -> str:
    why = f"{sits_idle(part.name)}{place_words(part.place)}"
    before, after = float(part.before_ns), float(part.after_ns)
    if not after:
        return f"The GPU no longer sits idle {why} ({units.duration(before)}{per} before)."
    if not before:
        return f"The GPU now sits idle for {units.duration(after)}{per} {why}."
    one, other = units.durations(before, after)
    number, _, unit = other.partition(" ")
    return f"The GPU sits idle for {number} instead of {one} {unit}{per} {why}."


def _work_sentence(part: PartDifference, per: str) -> str:
    name, where = part_title(part), place_words(part.place)
    plural = part.kind in ("copy", "memset")
    if part.change == "appeared" or not part.calls_before:
        new = "are new" if plural else "is new"
        return f"{name} {new}{where}: {_runs(part.calls_after, part.after_ns, per)}."
    if part.change == "vanished" or not part.calls_after:
        gone = "are gone" if plural else "is gone"
        return f"{name} {gone}, before {_runs(part.calls_before, part.before_ns, per)}{where}."
    if part.change == "renamed" and part.before and part.before.name != part.name:
        replaced = f"{name} replaces {part.before.name}{where}"
        return f"{replaced} and {_moved(part, per, plural=False)}{_shapes(part)}."
    return f"{name} {_moved(part, per, plural)}{where}{_shapes(part)}."


def _moved(part: PartDifference, per: str, plural: bool) -> str:
    """A clause on calls and time per call, as far as they account for the difference."""
    least = abs(part.delta_ns) * Fraction(_LEAST_OF_PART)
    take, make = ("take", "make") if plural else ("takes", "makes")
    calls = f"{_count(part.calls_after)} instead of {_count(part.calls_before)} calls{per}"
    more_calls = part.calls_before != part.calls_after and abs(part.calls_ns) >= least
    each = _each(part) if abs(part.each_ns) >= least else ""
    if more_calls:
        return f"{make} {calls}, {each}" if each else f"{make} {calls}"
    many = f", {_calls(part.calls_after)}{per}" if part.calls_after != 1 else ""
    return f"{take} {each}{many}" if each else f"{take} as long as before"


def _each(part: PartDifference) -> str:
    one, other = units.durations(
        float(part.before_ns / part.calls_before), float(part.after_ns / part.calls_after)
    )
    number, _, unit = other.partition(" ")
    return f"{number} instead of {one} {unit} per call"


def _runs(calls: Fraction, time: Fraction, per: str) -> str:
    each = units.duration(float(time / calls)) if calls else units.duration(float(time))
    return f"{_calls(calls)}{per} of {each}" if calls else f"{each}{per}"


def _calls(calls: Fraction) -> str:
    return f"{_count(calls)} call{'' if calls == 1 else 's'}"


def _count(number: Fraction) -> str:
    return units.count(int(number) if number.denominator == 1 else float(number))


def place_words(place: str) -> str:
    """The place of something as a suffix: ` at train.py:75`, ` in forward/layer_#`."""
    if not place:
        return ""
    return f" {'at' if _SOURCE_LINE.search(place) else 'in'} {short_place(place)}"


def short_place(place: str) -> str:
    """A source line, or the two innermost ranges of a path, which operators nest deeply."""
    if _SOURCE_LINE.search(place):
        return place
    return "/".join(place.split("/")[-2:])


def kernel_shares(before: Fraction, after: Fraction) -> str:
    """Two shares of kernel time, from 0 to 1, in words."""
    one, other = (units.percent(float(100 * share)) for share in (before, after))
    return f"{one} of kernel time before and {other} after"


def part_title(part: PartDifference) -> str:
    """The name of a part: that of a kernel, or its kind."""
    if part.kind == "idle":
        return f"GPU idle {sits_idle(part.name)}"
    if part.kind == "copy":
        return f"{part.group or part.name} copies"
    if part.kind == "memset":
        return "memsets"
    return part.name or {"graph": "CUDA graph"}.get(part.kind, part.kind)


def group_title(part: PartDifference) -> str:
    """The heading of the parts that a part belongs to: a class of kernels, idle time, copies."""
    if part.kind == "kernel":
        return f"{part.group or 'other'} kernels"
    titles = {"idle": "GPU idle", "communication": "communication", "copy": "copies",
              "memset": "memsets", "graph": "CUDA graphs"}  # fmt: skip
    return titles[part.kind]


def _shapes(part: PartDifference) -> str:
    if memories := other_memory(part):
        return f"; host memory {memories[1]} instead of {memories[0]}"
    if not (part.before and part.after and part.before.shape and part.after.shape):
        return ""
    changes = list(shape_changes(part.before.shape, part.after.shape))
    if part.change == "renamed":  # Another kernel has another grid.
        changes = [each for each in changes if each[0] in ("data type", "load width")]
    texts = [
        f"{what} {after} instead of {before}"
        for what, before, after in changes[:_MOST_SHAPE_CHANGES]
    ]
    return f"; {', '.join(texts)}" if texts else ""


def other_memory(part: PartDifference) -> tuple[str, str] | None:
    """The kinds of host memory of copies on both sides, as in `H2D pinned`, if they differ."""
    if part.kind != "copy" or not part.before or not part.after:
        return None
    kinds = [side.name.removeprefix(part.group).strip() for side in (part.before, part.after)]
    return (kinds[0], kinds[1]) if all(kinds) and kinds[0] != kinds[1] else None


def shape_changes(before: KernelShape, after: KernelShape) -> Iterator[tuple[str, str, str]]:
    """Differences of two launch configurations: name and both values, most telling first.

    A value that one side did not record is not a difference.
    """
    sides = dict(shape_values(before)), dict(shape_values(after))
    for name, value in sides[0].items():
        if name in sides[1] and sides[1][name] != value:
            yield name, value, sides[1][name]


def shape_values(shape: KernelShape) -> Iterator[tuple[str, str]]:
    """The known values of a launch configuration, with their names, most telling first."""
    if shape.dtype:
        yield "data type", shape.dtype
    if shape.load_bits is not None:
        yield "load width", units.quantity("bits", shape.load_bits)
    yield "grid", "×".join(units.count(each) for each in shape.grid)
    yield "block", "×".join(units.count(each) for each in shape.block)
    if shape.waves is not None:
        yield "waves", units.count(shape.waves)
    if shape.registers is not None:
        yield "registers per thread", units.count(shape.registers)
    if shape.shared_bytes is not None:
        yield "shared memory", units.size(shape.shared_bytes)


def environment_name(difference: EnvironmentDifference) -> str:
    """A property of the machine or the software in words."""
    return _ENVIRONMENT.get(difference.name, difference.name.replace("_", " "))


def changed_counts(comparison: RunComparison) -> list[CountDifference]:
    """The counts that differ by more than events in only a few of the steps explain."""
    return [count for count in comparison.counts if _changed(count)]


def _changed(count: CountDifference) -> bool:
    larger, more = max(count.before, count.after), abs(count.after - count.before)
    return more > larger * Fraction(_LEAST_COUNT) and more >= Fraction(_LEAST_PER_STEP)


def count_name(count: CountDifference) -> str:
    """A count in words."""
    return count.name.replace("_", " ")


def count_text(count: CountDifference, value: Fraction) -> str:
    """A count per step, in bytes where its name says so."""
    number = int(value) if value.denominator == 1 else float(value)
    return units.quantity(count.name, number)


def notes(comparison: RunComparison) -> Iterator[str]:
    """Notes on the limits of the answer."""
    recorders = {run.recorder for run in (*comparison.before, *comparison.after)}
    if len(recorders) > 1:
        listed = " and ".join(sorted(recorders))
        yield f"{listed} recorded the two sides: times on the CPU are not comparable."
    yield from comparison.notes
    for run in (*comparison.before, *comparison.after):
        for warning in run.warnings:
            yield f"{run.name}: {warning}"

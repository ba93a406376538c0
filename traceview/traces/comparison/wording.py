"""Sentences about a comparison of runs: the first line, a part that changed, what is not known."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction

from traceview.base import findings, units
from traceview.base.vocabulary.causes import sits_idle
from traceview.traces.comparison.comparison import (
    CountDifference,
    EnvironmentDifference,
    PartDifference,
    RunComparison,
)
from traceview.traces.comparison.figures import AT_START, KernelShape

PER_STEP = " per step"
_LEAST_OF_PART = 0.1
"""Of a part's difference: calls or time per call that account for less are not mentioned."""
_LEAST_COUNT, _LEAST_PER_STEP = 0.01, 0.05
_MOST_SHAPE_CHANGES = 2
_OTHER_WORK, _MOST_OF_WORK = 0.03, 0.8
_SOURCE_LINE = re.compile(r":\d+$")
_ENVIRONMENT = {
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
_TITLES = {
    "idle": "GPU idle", "communication": "communication", "copy": "copies", "memset": "memsets",
    "graph": "CUDA graphs",
}  # fmt: skip

# Each sentence on a part; `number` is 1 for a kernel and more for copies and memsets.

_IDLE_GONE = "The GPU no longer sits idle {why} ({before}{per} before)."
_IDLE_NEW = "The GPU now sits idle for {after}{per} {why}."
_IDLE = "The GPU sits idle for {times}{per} {why}."
_NEW = "{name} {number?is|are} new{where}: {runs_after}."
_GONE = "{name} {number?is|are} gone, before {runs_before}{where}."
_REPLACES = "{name} replaces {replaced}{where} and"
_MORE_CALLS = "{number?makes|make} {other_calls}[, {other_times}]"
_OTHER_TIME = "{number?takes|take} {other_times}[, {calls}]"
_AS_LONG = "{number?takes|take} as long as before"


def headline(comparison: RunComparison) -> str:
    """The first line: how much less or more time per step, and how sure that is."""
    before, after = comparison.before_ns, comparison.after_ns
    delta, certainty = comparison.delta_ns, comparison.certainty
    stepping = has_steps(comparison)
    per = "per step" if stepping else "of steady GPU time"
    if not delta:
        return f"No difference: {units.duration(float(before))} {per} on both sides."
    times = f"{'mean ' if stepping else ''}{instead(before, after)} {per}"
    moved = f"{times} ({units.difference(float(delta))}"
    if doubt := _not_comparable(comparison):
        why, remedy = doubt
        return f"{why}, so this tells of no speed-up: {moved}). {remedy}"
    direction = change_of_time(comparison)
    direction = f"{direction[0].upper()}{direction[1:]}"
    low, high = certainty.low_ns, certainty.high_ns
    if certainty.basis != "runs" or low is None:
        return f"{direction}: {moved}). {_not_known(comparison)}"
    if not certainty.is_certain:
        direction = "No difference beyond the noise of the runs"
    interval = ""
    if high is not None:
        lower, upper = units.difference(low) or "0", units.difference(high) or "0"
        number, _, unit = lower.rpartition(" ")
        lower = number if upper.endswith(f" {unit}") else lower
        level = units.count(round(certainty.level * 100))
        interval = f", {level} % interval {lower} to {upper}"
    runs = f"{certainty.runs_before} and {certainty.runs_after} runs"
    return f"{direction}: {moved}{interval}, {runs})."


def change_of_time(comparison: RunComparison) -> str:
    """`2.7× as fast`, `takes 7.3 % less`; empty where the sides cannot be compared."""
    before, after = comparison.before_ns, comparison.after_ns
    if not before or before == after or _not_comparable(comparison):
        return "" if before else "takes more"
    share = float((after - before) / before) * 100
    if share > 100:
        return f"{units.quantity('factor', float(after / before))} as long"
    if share <= -50 and after:
        return f"{units.quantity('factor', float(before / after))} as fast"
    return f"takes {units.percent(abs(share))} {'more' if share > 0 else 'less'}"


def instead(before_ns: Fraction, after_ns: Fraction) -> str:
    """Two times in one unit: `12.91 instead of 12.40 ms`."""
    before, after = units.durations(float(before_ns), float(after_ns))
    number, _, unit = after.partition(" ")
    return f"{number} instead of {before} {unit}"


def has_steps(comparison: RunComparison) -> bool:
    """Whether the times are per step, on both sides."""
    return all(run.has_steps for run in (*comparison.before, *comparison.after))


def _not_comparable(comparison: RunComparison) -> tuple[str, str] | None:
    """Why the times of the sides tell of no speed-up, and what to record instead; None if they may.

    First calls take time of their own. Without steps a recording that was cut after some time holds
    as many passes as fit into it, and another program may do more in one.
    """
    sides = {"first": comparison.before, "second": comparison.after}
    cold = [name for name, runs in sides.items() if any(run.cold for run in runs)]
    if cold:
        return f"The {' and the '.join(cold)} side {_COLD}", _WARM_UP
    work = [
        (factor, float(part.before_ns + part.after_ns))
        for part in comparison.parts
        if part.kind == "kernel" and part.name and (factor := _work_factor(part))
    ]
    whole_ns = sum(time_ns for _, time_ns in work)
    if has_steps(comparison) or not whole_ns:
        return None
    fewer = sum(time_ns for factor, time_ns in work if factor < 1 - _OTHER_WORK)
    more = sum(time_ns for factor, time_ns in work if factor > 1 + _OTHER_WORK)
    if max(fewer, more) < _MOST_OF_WORK * whole_ns:
        return None
    change = "less" if fewer > more else "more"
    return f"Most kernels do {change} work than before", _SAME_STEPS


_COLD = "shows first calls alone"
_WARM_UP = "Record passes after those that load and compile the code."
_SAME_STEPS = "Compare the times per call, or record the same steps on both sides."


def _work_factor(part: PartDifference) -> float | None:
    """How many times the work of before a kernel does, in calls and size; None if on one side.

    The size counts where a library fixes what a thread does by the name: any other kernel may give
    its threads more.
    """
    if not (part.before and part.after and part.calls_before and part.calls_after):
        return None
    shapes = [side.shape for side in (part.before, part.after) if side.shape and side.shape.dtype]
    sized = len(shapes) == 2 and part.before.name == part.after.name
    one, other = (math.prod(s.grid + s.block) for s in shapes) if sized else (1, 1)
    return float(part.calls_after * other / (part.calls_before * one))


def _not_known(comparison: RunComparison) -> str:
    if is_noise(comparison):
        return "Less than the scatter of the steps: no difference is shown."
    before, after = len(comparison.before), len(comparison.after)
    if before == after == 1:
        return "One run per side: not known whether this is noise; counts are exact."
    return f"{before} and {after} runs: too few to tell it from noise; counts are exact."


def is_noise(comparison: RunComparison) -> bool:
    """Whether the interval, over runs or steps, contains zero."""
    low, high = comparison.certainty.low_ns, comparison.certainty.high_ns
    return low is not None and high is not None and low <= 0 <= high


def sentence(part: PartDifference, per: str = PER_STEP) -> str:
    """A sentence on the change of one part; `per` names the unit of calls and times (a step)."""
    where = place_words(part.place)
    if part.kind == "idle":
        text = _IDLE if part.before_ns and part.after_ns else _IDLE_NEW
        return _filled(
            text if part.after_ns else _IDLE_GONE,
            why=f"{_idle_why(part)}{where}",
            before=units.duration(float(part.before_ns)),
            after=units.duration(float(part.after_ns)),
            times=instead(part.before_ns, part.after_ns),
            per=per,
        )
    calls = (part.calls_before, part.calls_after)
    values = {
        "name": part_title(part),
        "number": 2 if part.kind in ("copy", "memset") or _is_class(part) else 1,
        "where": where,
    }
    if part.change == "appeared" or not part.calls_before:
        return _filled(_NEW, **values, runs_after=_runs(calls[1], part.after_ns, per))
    if part.change == "vanished" or not part.calls_after:
        return _filled(_GONE, **values, runs_before=_runs(calls[0], part.before_ns, per))
    least = abs(part.delta_ns) * Fraction(_LEAST_OF_PART)
    if abs(part.each_ns) >= least:
        each = instead(part.before_ns / calls[0], part.after_ns / calls[1])
        values["other_times"] = f"{each} per call"
    if calls[0] != calls[1] and abs(part.calls_ns) >= least:
        values["other_calls"] = f"{number(calls[1])} instead of {number(calls[0])} calls{per}"
    elif calls[1] != 1:
        values["calls"] = f"{number(calls[1])} calls{per}"
    text = _OTHER_TIME if "other_times" in values else _AS_LONG
    text = _MORE_CALLS if "other_calls" in values else text
    if part.change == "renamed" and part.before and part.before.name != part.name:
        text, values["replaced"] = f"{_REPLACES} {text}", part.before.name
    else:
        text = f"{{name}} {text}{{where}}"
    return f"{_filled(text, **values)}{_shapes(part)}."


def _filled(text: str, **values: str | int) -> str:
    return findings.sentence(text, values).format_map(values)


def _runs(calls: Fraction, time_ns: Fraction, per: str) -> str:
    if not calls:
        return f"{units.duration(float(time_ns))}{per}"
    each = units.duration(float(time_ns / calls))
    return f"{number(calls)} call{'' if calls == 1 else 's'}{per} of {each}"


def number(value: Fraction) -> str:
    """A count, whole where it is."""
    return units.count(int(value) if value.denominator == 1 else float(value))


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
        return f"GPU idle {_idle_why(part)}"
    if part.kind == "copy":
        return f"{part.group or part.name} copies"
    if part.kind == "memset":
        return "memsets"
    if _is_class(part):
        return group_title(part)
    name = part.name or ("CUDA graph" if part.kind == "graph" else part.kind)
    return f"{name}, {part.variant}" if part.variant else name


def _idle_why(part: PartDifference) -> str:
    return "before its first work" if part.name == AT_START else sits_idle(part.name)


def _is_class(part: PartDifference) -> bool:
    """Whether the part is a class of kernels, as where two programs are compared."""
    return part.kind == "kernel" and not part.name


def group_title(part: PartDifference) -> str:
    """The heading of the parts that a part belongs to: a class of kernels, idle time, copies."""
    return f"{part.group or 'other'} kernels" if part.kind == "kernel" else _TITLES[part.kind]


def _shapes(part: PartDifference) -> str:
    if memories := other_memory(part):
        return f"; host memory {memories[1]} instead of {memories[0]}"
    if not (part.before and part.after and part.before.shape and part.after.shape):
        return ""
    texts = [
        f"{what} {after} instead of {before}"
        for what, before, after in shape_changes(part.before.shape, part.after.shape)
        # Another kernel has another grid.
        if part.change != "renamed" or what in ("data type", "load width")
    ]
    return f"; {', '.join(texts[:_MOST_SHAPE_CHANGES])}" if texts else ""


def other_memory(part: PartDifference) -> tuple[str, str] | None:
    """The kinds of host memory of copies on both sides, as in `H2D pinned`, if they differ."""
    if part.kind != "copy" or not part.before or not part.after:
        return None
    before, after = (
        side.name.removeprefix(part.group).strip() for side in (part.before, part.after)
    )
    return (before, after) if before and after and before != after else None


def shape_changes(before: KernelShape, after: KernelShape) -> Iterator[tuple[str, str, str]]:
    """Differences of two launch configurations: name and both values, most telling first.

    A value that one side did not record is not a difference.
    """
    values_after = dict(shape_values(after))
    for name, value in shape_values(before):
        if values_after.get(name, value) != value:
            yield name, value, values_after[name]


def shape_values(shape: KernelShape) -> Iterator[tuple[str, str]]:
    """The known values of a launch configuration, with their names, most telling first."""
    if shape.dtype:
        yield "data type", shape.dtype
    if shape.load_bits is not None:
        yield "load width", units.quantity("bits", shape.load_bits)
    yield "grid", "×".join(map(units.count, shape.grid))
    yield "block", "×".join(map(units.count, shape.block))
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
    return [
        count
        for count in comparison.counts
        if (more := abs(count.after - count.before)) >= Fraction(_LEAST_PER_STEP)
        and more > max(count.before, count.after) * Fraction(_LEAST_COUNT)
    ]


def count_name(count: CountDifference) -> str:
    """A count in words."""
    return count.name.replace("_", " ")


def count_text(count: CountDifference, value: Fraction) -> str:
    """A count per step, in bytes where its name says so."""
    return units.quantity(count.name, int(value) if value.denominator == 1 else float(value))


def notes(comparison: RunComparison) -> Iterator[str]:
    """Notes on the limits of the answer."""
    runs = (*comparison.before, *comparison.after)
    recorders = {run.recorder for run in runs}
    if len(recorders) > 1:
        listed = " and ".join(sorted(recorders))
        yield f"{listed} recorded the two sides: times on the CPU are not comparable."
    yield from comparison.notes
    for run in runs:
        for warning in run.warnings:
            yield f"{run.name}: {warning}"

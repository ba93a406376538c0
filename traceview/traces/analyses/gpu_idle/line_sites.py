"""Where the program spends idle time: the line with most of it, accidents that happen once,
and the DataLoader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.findings import MEDIUM, Subject, severity_of
from traceview.base.records import record
from traceview.base.tables import Array, Cell, Integers, Mask, Texts
from traceview.base.vocabulary.activities import ACTIVITIES, CPU, DATA_WAIT
from traceview.base.vocabulary.causes import GARBAGE_COLLECTION, GRAPH_LAUNCH, LAUNCH_LATE
from traceview.traces.facts import launch_lines, module_lines, operations
from traceview.traces.facts.idle.cpu_activity import ELSEWHERE_NS, seldom_launches
from traceview.traces.facts.idle.gaps import gaps, steady_spans_ns
from traceview.traces.facts.idle.lines import (
    IdleLines,
    IdleSamples,
    idle_samples,
    line_cells,
    lines_of,
    sum_lines,
)
from traceview.traces.facts.idle.stack_sites import calls_jax, function_name, stack_sites
from traceview.traces.facts.ranges.origins import READY_NS
from traceview.traces.facts.samples import (
    UNNAMED_FUNCTIONS,
    SampledLine,
    asking_frames,
    line_of,
    names_functions,
    place_of,
    program_frames,
    stack_lines,
)
from traceview.traces.facts.steps.steps import pace
from traceview.traces.trace import Trace, fact

LEAST_FRACTION = 0.05
"""A line with less of the idle time than this is not named."""
_INNER_ALONE = 0.9
_HALF, _NEARLY_ALL = 0.5, 0.9
"""A line that this part of the time passes through, its callees' included, is named beside a line
with less of its own; one with nearly all, such as that of main, would tell nothing."""
LEAST_SAMPLES = 5
"""A native function with fewer samples, and no recorded wait, is not named."""
ROW = ("device_id", "file", "line", "function", "inner", "activity")
"""The cells that identify a row of the table `lines`."""

_BACKWARD = "._engine_run_backward"
_LAUNCHING = re.compile(
    r"(torch|torchvision|torchaudio|torch_geometric|transformers|diffusers|lightning|accelerate|timm"
    r"|peft|xformers|deepspeed|vllm|jax|jaxlib|flax|optax|equinox|cupy|cupyx|numba(_cuda)?|triton|tensorflow"
    r"|keras)\b"
    # Of native code: the CUDA runtime and driver, and what is built on them.
    r"|cuda[A-Z]|cu[A-Z]|(thrust|cub|at|c10|torch)::|lib(cuda|cu[a-z]+|nccl|nv\w+|torch\w*|c10\w*)\b"
)
"""Libraries that launch GPU work: what they cost on the CPU is part of the cost of launches."""


class LineSite(NamedTuple):
    """A source line or native function, and its part of an idle time.

    `row` has the cells of the row of `lines` with most of the time. `inner` is the library function
    if it is most of the line, `inner_alone` True if it is nearly all. `number` is the line's number
    in lines_of. `undone` is the module behind half or more of the time in a backward pass, `asks`
    the line of the forward pass that asks for it.
    `other_work` is True where most of the time went into work other than launches, `says_enough`
    where the activity makes `inner` superfluous. `through` is the innermost line that half of the
    whole idle time passes through, in `through_ns`, where the line itself has less. `samples` is
    the number of samples that its time rests on, 0 where it is known otherwise, too. `begins` is
    that of a SampledLine.
    """

    file: str
    line: int | None
    function: str
    inner: str | None
    inner_alone: bool
    source: str | None
    time_ns: int
    other_work: bool
    row: dict[str, Cell]
    number: int
    native: bool
    says_enough: bool
    samples: int
    begins: bool = False
    undone: module_lines.ModuleLine | None = None
    asks: launch_lines.ForwardLine | None = None
    through: SampledLine | None = None
    through_ns: int = 0

    @property
    def name(self) -> str:
        """Such as `train.py:123`, or `simulate` of native code."""
        if self.native:
            return function_name(self.function)
        return place_of(self._file_name, self.line, self.function, begins=self.begins)

    @property
    def _file_name(self) -> str:
        return self.file.rpartition("/")[2] or self.file

    def subject(self) -> Subject:
        """The line to change: of a backward pass, that of the forward pass."""
        return (
            self.asks.line.subject
            if self.asks
            else Subject("line", self.name, self.file, self.line)
        )

    def place(self) -> tuple[str, dict[str, Cell]]:
        """`at train.py:123 in get_batch (`sorted(…)`)`, as a template and its values."""
        if self.native:
            values: dict[str, Cell] = {"function": self.name, "module": self._file_name}
            template = "in {function} ({module})"
        else:
            template, values = self._python_place()
        clause, inner = self.inner_clause()
        return template + clause, {**values, **inner}

    def inner_clause(self) -> tuple[str, dict[str, Cell]]:
        """`, calling torch.add`, as a template and its values; empty without a function to name."""
        mostly = "" if self.inner_alone else "mostly "
        if self.inner and self.inner.endswith(_BACKWARD):
            if self.undone:
                where = "in the backward pass of {module}, called at {called}"
                module = self.undone
                return f", {mostly}{where}", {"module": module.module, "called": module.place}
            if self.asks:
                line, fraction = self.asks.line, self.asks.fraction
                named: dict[str, Cell] = {
                    "asks": line.place,
                    "asking": line.named_function,
                    "asking_source": line.source,
                    **self.asks.below_values,
                }
                of = "[ in {asking}][ (`{asking_source}`)]"
                if fraction < 1:
                    named["asks_pct"] = 100 * fraction
                    named["asks_else"] = line.elsewhere
                    more = "; of the launches of forward passes, more are made {asks:at}"
                    more = f"{more}{of} than {{asks_else}} ({{asks_pct}})"
                    return f", {mostly}in the backward pass{more}", named
                of = f"{{asks}}{of}{launch_lines.BELOW}"
                return f", {mostly}in the backward pass of {of}", named
            return f", {mostly}in the backward pass", {}
        if self.inner and not self.says_enough:
            return f", {mostly}calling {{inner}}", {"inner": self.inner}
        return "", {}

    def _python_place(self) -> tuple[str, dict[str, Cell]]:
        template, values = "{site:at}", dict[str, Cell](site=self.name)
        if self.asks:
            return template, values
        if not self.begins and self.function not in UNNAMED_FUNCTIONS:
            template, values = f"{template} in {{function}}", {**values, "function": self.function}
        if self.source:
            template, values = f"{template} (`{{source}}`)", {**values, "source": self.source}
        return template, values


def samples_of(trace: Trace, chosen: Mask) -> IdleSamples:
    """The samples in the chosen gaps."""
    samples = idle_samples(trace)
    return samples.take(chosen[samples.gap])


@fact
def launching_sites(trace: Trace) -> Mask:
    """True for the rows of stack_sites in a library that launches, or in no code of the program."""
    sites = stack_sites(trace)
    names = [str(name) for name in sites.inner.values if _LAUNCHING.match(str(name))]
    launching: Mask = sites.inner.isin(names) | (sites.native & (sites.number < 0))
    return launching | (calls_jax(trace) & (sites.inner.codes < 0))


def works_on_cpu(trace: Trace, samples: IdleSamples) -> Mask:
    """True for the samples at work other than launching.

    Either the innermost library, if any, is none that launches, and the gap is too long to be due
    to the cost of launches; or hardly anything is launched in a long gap, so that a library that
    launches must be working on the CPU.
    """
    result: Mask = ~launching_sites(trace)[samples.site] | seldom_launches(trace)[samples.gap]
    result &= (samples.doing == CPU) & (gaps(trace).idle_ns[samples.gap] > ELSEWHERE_NS)
    return result


_FEWEST, _UNEVEN, _SURE = 30, 0.2, 1.95
"""Of so many samples the places in their gaps may differ this much from even ones, and by chance,
once in a thousand times, this much over the root of their number (Kolmogorov and Smirnov)."""


def hides_python(trace: Trace, samples: IdleSamples) -> bool:
    """Whether samples of Python miss what ran in most of the long gaps that they lie in.

    A thread is sampled when it next gives its lock away, which pure Python does seldom: the samples
    gather where it calls a library, near the ends of the gaps. 136 of a tree search between calls
    of a network: 80 in the first 0.3 of the gaps, 56 in the last 0.3, none in between.
    """
    idle_ns = gaps(trace).idle_ns[samples.gap]
    long = (samples.doing == CPU) & (idle_ns > ELSEWHERE_NS)
    long &= ~stack_sites(trace).native[samples.site]
    count = int(np.count_nonzero(long))
    if count < _FEWEST:
        return False
    begun_ns = samples.at_ns[long] - gaps(trace).start_ns[samples.gap[long]]
    place = np.sort(begun_ns / idle_ns[long])
    above, below = np.arange(1, count + 1) / count - place, place - np.arange(count) / count
    return max(above.max(), below.max()) > max(_UNEVEN, _SURE / count**0.5)


def off_cpu_times(samples: IdleSamples) -> dict[int, int]:
    """Idle time in ns by activity, for those of which gpu-idle has a finding."""
    waits = [doing for doing, each in enumerate(ACTIVITIES) if each.lost and doing != CPU]
    return {doing: int(samples.time_ns[samples.doing == doing].sum()) for doing in waits}


def longest_line(trace: Trace, samples: IdleSamples, idle_ns: int) -> LineSite | None:
    """The line with most of the samples' time; None if that is little of the idle time."""
    lines = sum_lines(trace, samples)
    known = np.flatnonzero(lines.line >= 0)
    if not len(known):
        return None
    each = groups.group(lines.line[known])
    time = groups.sums(each, lines.time_ns[known])
    most = int(np.argmax(time))
    time_ns = int(time[most])
    line = int(lines.line[known[each.first[most]]])
    if time_ns < LEAST_FRACTION * idle_ns or not _well_known(trace, samples, line):
        return None
    rows = known[each.ids == most]
    site = _site(trace, lines, samples, rows, time_ns)
    if site.native or site.asks or time_ns >= _HALF * idle_ns:
        return site
    through, through_ns = _through(trace, samples, line, idle_ns)
    return site._replace(through=through, through_ns=through_ns)


def _through(
    trace: Trace, samples: IdleSamples, most: int, idle_ns: int
) -> tuple[SampledLine | None, int]:
    """The innermost line that half of an idle time passes through, and the time that does.

    None where it is but the call of the function of the line with `most`, a number in lines_of.
    """
    of_stack = np.bincount(samples.site, samples.time_ns, len(stack_sites(trace)))
    passed = passed_lines(trace, of_stack)
    frame, line, time_ns = passed
    stack = trace.recorded("python_frames")["stack"][frame]
    fits = (time_ns >= _HALF * idle_ns) & (time_ns < _NEARLY_ALL * samples.time_ns.sum())
    if not fits.any():
        return None, 0
    innermost = passed.innermost(fits)
    at = stack_lines(trace).frame[groups.different(samples.site[lines_of(trace, samples) == most])]
    caller = np.searchsorted(frame, at) + 1
    caller = caller[caller < len(frame)]
    caller = line.ids[caller[stack[caller] == stack[caller - 1]]]
    if (caller == innermost).all():
        return None, 0
    return passed.line_at(trace, innermost), int(time_ns[innermost])


class PassedLines(NamedTuple):
    """The lines that stacks pass through: `of_line` is what passes through each of `line`.

    `frame` are the rows of python_frames in the program, `line` their lines.
    """

    frame: Integers
    line: groups.Groups
    of_line: Array

    def innermost(self, fits: Mask) -> int:
        """Of the lines that fit, the one that least passes through, of equal ones the inner one."""
        # Frames come by stack, innermost first.
        return int(np.lexsort((self.line.first, self.of_line, ~fits))[0])

    def line_at(self, trace: Trace, line: int) -> SampledLine | None:
        return line_of(trace, self.frame[self.line.first[[line]]], 1)


def passed_lines(trace: Trace, of_stack: Array) -> PassedLines:
    """What passes through each line of the program, of what each row of stack_sites has."""
    frames, frame = trace.recorded("python_frames"), program_frames(trace)
    frame = frame[of_stack[frames["stack"][frame]] > 0]
    stack = frames["stack"][frame]
    line = groups.group(frames.texts("file").codes[frame], frames["line"][frame])
    # A line that calls itself is in a stack once.
    once = groups.group(stack, line.ids).first
    of_line = np.bincount(line.ids[once], of_stack[stack[once]], line.size)
    return PassedLines(frame, line, of_line)


def asking_line(trace: Trace, samples: IdleSamples) -> SampledLine | None:
    """The line that asks the DataLoader for batches during most of the samples' time."""
    asks = asking_frames(trace)
    site = samples.site[samples.site < len(asks)]
    return line_of(trace, asks[site][asks[site] >= 0], max(1, _HALF * len(samples.site)))


def gap_at_line(trace: Trace, samples: IdleSamples, line: LineSite) -> int:
    """The gap (row in gaps) with most time of a line; if possible, of gaps half of which it is."""
    idle_ns = gaps(trace).idle_ns
    own = samples.take(lines_of(trace, samples) == line.number)
    # A sample in a short gap stands for other gaps, too.
    time_ns = np.minimum(np.bincount(own.gap, own.time_ns, len(idle_ns)), idle_ns)
    mostly = 2 * time_ns >= idle_ns
    return int(np.argmax(np.where(mostly, time_ns, 0) if mostly.any() else time_ns))


def _well_known(trace: Trace, samples: IdleSamples, line: int) -> bool:
    """Whether a line of native code, where samples are rare, has enough samples or a known wait."""
    own = samples.take(lines_of(trace, samples) == line)
    native = stack_sites(trace).native[own.site].any()
    return not native or int(own.sampled.sum()) >= LEAST_SAMPLES or not own.sampled.all()


def _site(
    trace: Trace, lines: IdleLines, samples: IdleSamples, rows: Array, time_ns: int
) -> LineSite:
    top = int(rows[np.argmax(lines.time_ns[rows])])
    cells = {name: _cell(values, top) for name, values in line_cells(trace, lines).items()}
    inner_ns, own = int(lines.time_ns[top]), lines_of(trace, samples) == int(lines.line[top])
    inner = str(cells["inner"]) if cells["inner"] and 2 * inner_ns >= time_ns else None
    backward = inner is not None and inner.endswith(_BACKWARD)
    undone = _undone(trace, samples, int(lines.line[top])) if backward else None
    stack = int(lines.site[top])
    # A pause that came once says nothing of what the forward pass asks for again and again.
    of_gap = np.bincount(samples.gap[own], samples.time_ns[own], len(gaps(trace)))
    once = 2 * int(np.minimum(of_gap, gaps(trace).idle_ns).max(initial=0)) >= time_ns
    asked = backward and not undone and not once and launch_lines.in_backward(trace)[stack]
    return LineSite(
        file=str(cells["file"]),
        line=None if cells["line"] is None else int(cells["line"]),
        function=str(cells["function"]),
        inner=inner,
        inner_alone=inner_ns >= _INNER_ALONE * time_ns,
        source=None if cells["source"] is None else str(cells["source"]),
        time_ns=time_ns,
        other_work=2 * int(samples.time_ns[own & works_on_cpu(trace, samples)].sum()) > time_ns,
        row={name: cells[name] for name in ROW},
        number=int(lines.line[top]),
        native=bool(stack_sites(trace).native[stack]),
        says_enough=ACTIVITIES[int(lines.doing[top])].says_enough,
        samples=int(np.count_nonzero(own)) if samples.sampled[own].all() else 0,
        begins=names_functions(trace),
        undone=undone,
        asks=launch_lines.forward_line(trace) if asked else None,
    )


def _undone(trace: Trace, samples: IdleSamples, line: int) -> module_lines.ModuleLine | None:
    """The module whose work follows most of the idle time of a line."""
    own = samples.take(lines_of(trace, samples) == line)
    found = module_lines.most_time(trace, gaps(trace).after[own.gap], own.time_ns)
    return found[0] if found else None


def _cell(values: Array | Texts, row: int) -> Cell:
    if isinstance(values, Texts):
        return values[row]
    value = int(values[row])
    return None if value == np.iinfo(np.int32).min else value


# Idle time in few calls or pauses of the CPU that are long for once: accidents, not the rule.
#
# Fewer launches, or less CPU work between them, would not help there.

LONG = 10
"""Times the median. Launch calls of one program vary by a factor of 2 or 3 (4 to 15 µs on an H200's
host); those that block take 0.2 to 40 ms (pytorch/pytorch#162466)."""
LEAST_NS = 200_000
"""Shorter ones are in the noise of a host, such as a wake-up of the thread."""
MOST, MOST_OF_STEPS = 3, 0.1
"""What comes more often than that, or in more than this part of the steps where there are some, is
a habit. One is none, unless there is one step only."""
OTHERS = 4
"""For each long one there are at least so many others: a median of fewer says nothing."""


@record
class Accident:
    """Steady idle time of a GPU (row in devices) with one cause, in few long calls or pauses.

    `gaps` are rows of gaps. `calls` are rows of api_calls, none for pauses outside of calls.
    `usual_ns` is the median of such a call, or of the other idle times of the cause; 0 where there
    are too few calls of the name.
    """

    device: int
    cause: int
    gaps: Array
    calls: Array
    usual_ns: int


def of_cause(trace: Trace, device: int, cause: int) -> list[Accident]:
    return [each for each in _all(trace) if (each.device, each.cause) == (device, cause)]


def in_accidents(trace: Trace) -> Mask:
    """True for the rows of gaps that are in accidents."""
    result = np.zeros(len(gaps(trace)), bool)
    for accident in _all(trace):
        result[accident.gaps] = True
    return result


@fact
def _all(trace: Trace) -> tuple[Accident, ...]:
    return tuple(
        accident
        for device in steady_spans_ns(trace)
        for cause in (LAUNCH_LATE, GRAPH_LAUNCH, GARBAGE_COLLECTION)
        for accident in _accidents(trace, device, cause)
    )


def _most(steps: int) -> float:
    if not steps:
        return MOST
    return max(MOST_OF_STEPS * steps, 1 if steps > 1 else 0)


def _accidents(trace: Trace, device: int, cause: int) -> Iterator[Accident]:
    every, calls = gaps(trace), operations.api_calls(trace)
    own = np.flatnonzero(every.steady(device, cause))
    if not len(own):
        return
    # No length of a garbage collection is usual: it is long by the objects that there are.
    usual_ns = 0 if cause == GARBAGE_COLLECTION else round(float(np.median(every.idle_ns[own])))
    long = own[every.idle_ns[own] >= max(LONG * usual_ns, LEAST_NS)]
    names = trace.recorded("api_calls").texts("name").codes
    call = every.within[long]
    # Of each whole gap, the time of its parts that have samples: little may lie beside a copy.
    shown_ns, whole_ns = np.zeros((2, int(every.gap[own].max()) + 1), np.int64)
    sampled = own[groups.isin(own, idle_samples(trace).gap)]
    np.add.at(shown_ns, every.gap[sampled], every.idle_ns[sampled])
    np.add.at(whole_ns, every.gap[own], every.idle_ns[own])
    steps = int(np.count_nonzero(pace(trace).timed & ~pace(trace).warm_up))
    of_name = np.where(call >= 0, names[call], -1) if len(names) else np.full(len(long), -1)
    for name, places in groups.rows_of(of_name).items():
        rows, within = long[places], call[places]
        usual = usual_ns
        if name >= 0:
            alike = calls.duration_ns[names == name]
            usual = round(float(np.median(alike))) if len(alike) > OTHERS * len(rows) else 0
            took = calls.duration_ns[within]
            kept = (took >= max(LONG * usual, LEAST_NS)) & (2 * took >= every.idle_ns[rows])
        else:
            # Where samples show the line, that says more.
            shown = 2 * shown_ns[every.gap[rows]] > whole_ns[every.gap[rows]]
            kept = ~shown | (cause == GARBAGE_COLLECTION)
        rows, within = rows[kept], within[kept]
        # What else held these gaps up belongs to it, as the first launch of a new graph.
        rows = own[groups.isin(every.gap[own], every.gap[rows])]
        few = len(within) <= _most(steps) and len(own) > OTHERS * len(within) * (
            cause != GARBAGE_COLLECTION
        )
        lost_ns, span_ns = int(every.idle_ns[rows].sum()), steady_spans_ns(trace)[device]
        if len(rows) and few and severity_of(lost_ns, span_ns) in ("high", "medium"):
            yield Accident(device, cause, rows, within[within >= 0], usual)


# Whether the DataLoader is the limit of a program.
#
# A program that finds no batch ready waits. If that happens again and again, the workers are
# slower than the program: launches that came sooner would only wait longer. Waits for the first
# batch of an epoch, and the time it takes to receive a batch that is ready, do not count.

LEAST_WAITS, LEAST_OF_STEPS = 3, 0.1
"""Fewer waits for the workers, or waits in a smaller part of the steps, are not a rhythm."""


@fact
def starved_devices(trace: Trace) -> dict[int, bool]:
    """For each device with steady work, whether its program waits for the DataLoader's workers."""
    every, samples, timed = gaps(trace), idle_samples(trace), pace(trace)
    steady = (every.cause == LAUNCH_LATE) & ~every.one_time
    own = steady[samples.gap] & (samples.doing == DATA_WAIT)
    waited_ns = np.bincount(samples.gap[own], samples.time_ns[own], minlength=len(every))
    steps = int(np.count_nonzero(timed.timed & ~timed.warm_up))
    least = max(LEAST_WAITS, LEAST_OF_STEPS * steps)
    result = {}
    for device, span_ns in steady_spans_ns(trace).items():
        long = (waited_ns >= READY_NS) & (every.device == device)
        enough = waited_ns[long].sum() >= MEDIUM * span_ns
        result[device] = bool(enough and np.count_nonzero(long) >= least)
    return result

"""Sampled Python stacks of threads: the line of the program, and what the thread did there."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.findings import Subject
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, Table, Texts
from traceview.base.vocabulary import activities
from traceview.traces.facts import code
from traceview.traces.facts.launches import waits
from traceview.traces.trace import Trace, fact, fact_without_ranges, model, schema

# The compiler that each sampled Python stack shows at work.


class CompilerFrames(NamedTuple):
    """The outermost compiler frame of each stack, one row per stack.

    `row` is the frame's row in python_frames, `tool` an index into `code.TOOLS`; both are −1
    for a stack without such a frame.
    """

    tool: Integers
    row: Integers


@fact
def compiler_frames(trace: Trace) -> CompilerFrames:
    """The compiler frame of each stack; none where the compiler is being imported or shut down."""
    frames = trace.recorded("python_frames")
    files, stack = frames.texts("file"), frames["stack"]
    known = np.array([code.tool_of_file(str(name)) for name in files.values] + [-1], np.int64)
    functions = frames.texts("function")
    idle = functions.isin([name for name in functions.values if code.IDLE.match(str(name))])
    tool = np.where(idle, -1, known[files.codes])
    result = np.full(int(stack.max(initial=-1)) + 1, -1, np.int64)
    # Frames come by stack, innermost first, so the last assignment leaves the outermost one.
    rows = np.flatnonzero(tool >= 0)
    result[stack[rows]] = tool[rows]
    outermost = np.full(len(result), -1, np.int64)
    outermost[stack[rows]] = rows
    importing = [str(name) for name in files.values if code.IMPORTS in str(name)]
    imports = np.flatnonzero(files.isin(importing))
    result[stack[imports[imports > outermost[stack[imports]]]]] = -1
    return CompilerFrames(result, np.where(result >= 0, outermost, -1))


# The line of the user's program in each sampled Python stack, and what the thread did there.

UNNAMED_FUNCTIONS = ("<module>", "[Unknown]")
"""Functions that a sentence does not name: the top of a file, and one that nsys could not name."""


@fact_without_ranges
def names_functions(trace: Trace) -> bool:
    """Whether the line of a frame is that at which its function begins: torch.profiler's stacks."""
    return trace.recorder == schema.TORCH_PROFILER and trace.run.get("backend") != "torch"


def place_of(file: str, line: int | None, function: str, *, begins: bool) -> str:
    """Such as `train.py:31`; `step (train.py:9)` of a line at which its function `begins`."""
    at = file if line is None else f"{file}:{line}"
    if not begins:
        return at
    return file if function in UNNAMED_FUNCTIONS else f"{function} ({at})"


_OWN = r"(^|/)traceview_injected/"
_INSTALLED = r".*(?:^|/)(?:(?:site|dist)-packages|lib(?:64)?/python[\d.]+t?)/"
_GENERATED = rf"/torchinductor_[^/]*/|{model.INDUCTOR}"
# Frames are written `torch/nn/functional.py::linear`.
# nsys leaves out the frames of importlib, but not those of the modules that are imported.
_IMPORTS = r"^<frozen importlib\._bootstrap|::<module>$"
_LOADER = (
    r"torch/utils/data/dataloader\.py::"
    r"(__next__|_next_data|_get_data|_try_get_data|__iter__|__init__|_reset|_get_iterator)$"
)
_FETCH = r"torch/utils/data/_utils/fetch\.py::fetch$"
_LOCKS = r"/(threading\.py::(wait|acquire|join|_wait_for_tstate_lock)|queue\.py::(get|put))$"
_PROCESSES = (
    r"/(selectors\.py::select|multiprocessing/(connection|popen_\w+)\.py::\w+"
    r"|subprocess\.py::(_try_wait|_wait|wait|communicate|_communicate)|(socket|ssl)\.py::\w+)$"
)
_FILES = r"/torch/serialization\.py::|/numpy/lib/(_?format|npyio|_npyio)\w*\.py::"
# Functions that read an array or wait for it; array methods written in C++ have no frame.
_RESULTS = r"jax/_src/(array\.py::(_value|__array__)|api\.py::(block_until_ready|device_get))$"
_COMPILED = re.compile(r"(^|/)torch/_dynamo/eval_frame\.py::")
_BACKWARD = r"torch/autograd/graph\.py::_engine_run_backward$"
_LAUNCHERS = (
    r"(^|/)(triton/runtime/(jit|autotuner)\.py::run|torch/_inductor/runtime/\w+\.py::run"
    r"|torch/_ops\.py::__call__|numba(_cuda|/cuda)?/.*dispatcher\.py::\w+"
    r"|warp/(_src/)?context\.py::launch)$"
)
"""Functions that launch a kernel from Python. Whatever they call, such as binders that Triton
generates or a look into the environment, is part of the cost of a launch."""


@record
class StackLines:
    """One row per stack.

    `frame` is the row in python_frames of the innermost frame in the user's program, `leaf` that of
    the innermost frame but the recorder's own; −1 without one. `inner` is the name of the innermost
    library function below `frame`, such as `torch.nn.functional.linear`, but for what a launcher of
    kernels calls: there it is the launcher. `doing` is an index into
    DOINGS as far as the frames show it, and `launches` True where the thread waits in autograd for
    the thread that launches.
    """

    frame: Integers
    leaf: Integers
    inner: Texts
    doing: Array
    launches: Mask


@fact
def stack_lines(trace: Trace) -> StackLines:
    """The lines of the distinct stacks, whose frames come in order of stack and depth."""
    frames, named = trace.recorded("python_frames"), _named_frames(trace)
    stack, depth = frames["stack"], frames["depth"]
    stacks = int(stack.max(initial=-1)) + 1

    def matching(pattern: str) -> Mask:
        return named.matching(re.compile(pattern))

    def first_row(chosen: Mask) -> Integers:
        """Per stack, the innermost chosen frame, or −1."""
        rows = np.flatnonzero(chosen)
        result = np.full(stacks, -1, np.int64)
        result[stack[rows[::-1]]] = rows[::-1]
        return result

    own, library = matching(_OWN), _of_library(frames)
    user = first_row(~library & ~own)
    leaf = first_row(~own)
    user_depth = np.where(user >= 0, depth[user], np.iinfo(np.int32).max)
    below = depth < user_depth[stack]

    def anywhere(pattern: str) -> Mask:
        return first_row(matching(pattern)) >= 0

    def below_user(pattern: str) -> Mask:
        return first_row(matching(pattern) & below) >= 0

    def in_leaf(pattern: str) -> Mask:
        return (leaf >= 0) & np.append(matching(pattern), False)[leaf]

    rules = (
        (compiler_frames(trace).tool >= 0, activities.COMPILATION),
        (below_user(_IMPORTS), activities.IMPORT),
        (anywhere(_FETCH), activities.DATA_LOADING),
        (anywhere(_LOADER), activities.DATA_WAIT),
        (in_leaf(_LOCKS), activities.LOCK),
        (in_leaf(_PROCESSES), activities.PROCESS),
        (in_leaf(_FILES), activities.FILE),
        (below_user(_RESULTS), activities.RESULT_WAIT),
    )
    doing = np.select([test for test, _ in rules], [kind for _, kind in rules], activities.CPU)
    inner, launcher = first_row(~own & library & below), first_row(matching(_LAUNCHERS) & below)
    inner = np.where(launcher >= 0, launcher, inner)
    return StackLines(
        frame=user,
        leaf=leaf,
        inner=_inner_names(frames, np.where(leaf == user, -1, inner)),
        doing=doing.astype(np.uint8),
        launches=in_leaf(_BACKWARD),
    )


@fact
def program_frames(trace: Trace) -> Integers:
    """The rows of python_frames in the user's program."""
    own = _named_frames(trace).matching(re.compile(_OWN))
    return np.flatnonzero(~_of_library(trace.recorded("python_frames")) & ~own)


@fact
def in_broken_graphs(trace: Trace) -> Mask:
    """True for the stacks with a frame of the program inside of what torch.compile compiled.

    In a whole graph there is none: behind a graph break, Python runs the program's function on.
    """
    frame = stack_lines(trace).frame
    rows = np.flatnonzero(_named_frames(trace).matching(_COMPILED))
    outermost = np.full(len(frame), -1, np.int64)
    # Frames come by stack, innermost first.
    outermost[trace.recorded("python_frames")["stack"][rows]] = rows
    result: Mask = (frame >= 0) & (frame < outermost)
    return result


def stacks_through(trace: Trace, frame: re.Pattern[str]) -> Mask:
    """True for the stacks with a frame, such as `torch/nn/functional.py::linear`, that matches."""
    result = np.zeros(len(stack_lines(trace).frame), bool)
    result[trace.recorded("python_frames")["stack"][_named_frames(trace).matching(frame)]] = True
    return result


def frame_through(trace: Trace, stack: int, frame: re.Pattern[str]) -> tuple[str, str]:
    """Place, such as `train.py:31`, and function of the outermost frame of a stack that matches."""
    frames, own = trace.recorded("python_frames"), _named_frames(trace).matching(frame)
    row = int(np.flatnonzero(own & (frames["stack"] == stack))[-1])
    file, function = str(frames.texts("file")[row]), str(frames.texts("function")[row])
    return Subject.of_line(file, int(frames["line"][row])).name, function


@fact
def asking_frames(trace: Trace) -> Integers:
    """Per stack, the program's frame that asks a DataLoader for a batch; −1 without one.

    The data set that the loader calls may be the program's as well.
    """
    frames = trace.recorded("python_frames")
    stack, depth, program = frames["stack"], frames["depth"], program_frames(trace)
    stacks = len(stack_lines(trace).frame)
    outermost = np.full(stacks, -1, np.int64)
    of_loader = np.flatnonzero(_named_frames(trace).matching(re.compile(_LOADER)))
    np.maximum.at(outermost, stack[of_loader], depth[of_loader])
    asks = program[(outermost[stack[program]] >= 0) & (depth[program] > outermost[stack[program]])]
    result = np.full(stacks, -1, np.int64)
    result[stack[asks[::-1]]] = asks[::-1]
    return result


def leaves_in(trace: Trace, frame: re.Pattern[str]) -> Mask:
    """True for the stacks whose innermost frame, such as `torch/_ops.py::__call__`, matches."""
    leaf = stack_lines(trace).leaf
    return np.append(_named_frames(trace).matching(frame), False)[leaf]


def leaves_at(trace: Trace, text: re.Pattern[str]) -> tuple[Mask, Mask]:
    """True for the stacks whose innermost line matches, and for those where that is known."""
    source = trace.recorded("python_frames").texts("source")
    leaf = stack_lines(trace).leaf
    matches = source.isin([str(line) for line in source.values if text.search(str(line))])
    known = source.codes >= 0
    return np.append(matches, False)[leaf], np.append(known, False)[leaf]


def stacks_at(trace: Trace, text: re.Pattern[str]) -> Mask:
    """True for the stacks whose innermost frame is at a program line whose source matches."""
    frames, frame = trace.recorded("python_frames"), stack_lines(trace).frame
    source = frames.texts("source")
    matching = source.isin([str(line) for line in source.values if text.search(str(line))])
    return np.append(matching & (frames["depth"] == 0), False)[frame]


def _of_library(frames: Table) -> Mask:
    """True for the frames outside the user's program.

    Code in <string> is generated, except for that of `python -c`, which is outermost.
    """
    file, stack = frames.texts("file"), frames["stack"]
    of_file = np.array([model.is_library(str(name)) for name in file.values] or [False], bool)
    text = file.isin(["<string>"])
    outermost = np.append(stack[1:] != stack[:-1], True)[: len(stack)]
    program = np.isin(stack, stack[text & outermost])
    return of_file[file.codes] | (text & ~program)


@record
class _NamedFrames:
    """Names of frames such as `torch/nn/functional.py::linear`, each once, and that of each row."""

    names: list[str]
    number: Integers

    def matching(self, pattern: re.Pattern[str]) -> Mask:
        """True for the rows of python_frames whose name matches somewhere."""
        hit = np.array([*(bool(pattern.search(name)) for name in self.names), False], bool)
        return hit[self.number]


@fact
def _named_frames(trace: Trace) -> _NamedFrames:
    frames = trace.recorded("python_frames")
    file, function = frames.texts("file"), frames.texts("function")
    pairs = groups.group(file.codes, function.codes)
    return _NamedFrames(
        [f"{file[row]}::{function[row]}" for row in pairs.first.tolist()], pairs.ids
    )


def _inner_names(frames: Table, rows: Integers) -> Texts:
    """`torch.nn.functional.linear` for a frame, absent for row −1."""
    file, function = frames.texts("file"), frames.texts("function")
    known = np.flatnonzero(rows >= 0)
    pairs = groups.group(file.codes[rows[known]], function.codes[rows[known]])
    first = rows[known][pairs.first].tolist()
    names = Texts.of(_dotted(str(file[row]), str(function[row])) for row in first)
    codes = np.full(len(rows), -1, np.int32)
    codes[known] = names.codes[pairs.ids]
    return Texts(codes, names.values)


def _dotted(file: str, function: str) -> str:
    if function in UNNAMED_FUNCTIONS:
        return _module(file)
    if re.search(_GENERATED, file):
        return f"torch.compile.{function}"
    return f"{_module(file)}.{function}".lstrip(".")


def _module(file: str) -> str:
    path = re.sub(_INSTALLED, "", file).removesuffix(".py").removesuffix("/__init__")
    return path.strip(" <>").replace("/", ".").lstrip(".")


# The line of the program at which Python samples show a thread during its waits.

LEAST_SAMPLES, LEAST_FRACTION = 5, 2 / 3
"""A line with fewer samples, or a smaller part of those during the waits, is not named."""


class SampledLine(NamedTuple):
    """A line of the program, and how many of some samples were at it.

    `source` is its text, None where that was not recorded; `frame` a row of python_frames.
    With `begins`, it stands for all of the function, which begins at it.
    """

    file: str
    line: int
    function: str
    samples: int
    source: str | None = None
    frame: int = -1
    begins: bool = False

    @property
    def place(self) -> str:
        """Such as `train.py:31`, or `step (train.py:9)`."""
        file = self.file.rpartition("/")[2]
        return place_of(file, self.line, self.function, begins=self.begins)

    @property
    def named_function(self) -> str | None:
        """The function, if it has a name that `place` does not say."""
        return None if self.begins or self.function in UNNAMED_FUNCTIONS else self.function

    @property
    def site(self) -> str:
        """The place and its function."""
        return self.place if self.begins else f"{self.place} in {self.function}"

    @property
    def elsewhere(self) -> str:
        """All other places of its kind."""
        return "in any other function" if self.begins else "at any other line"

    @property
    def subject(self) -> Subject:
        """The line as the subject of a finding."""
        return Subject("line", self.place, self.file, self.line)


@fact
def sample_waits(trace: Trace) -> Integers:
    """Row in `waits` of the wait around each Python sample, or −1; the last to begin of several."""
    samples, every = trace.recorded("python_samples"), waits(trace)
    result = np.full(len(samples), -1, np.int64)
    for thread in groups.different(samples["thread"]).tolist():
        own = np.flatnonzero(every.thread == thread)
        if not len(own):
            continue
        own = own[np.argsort(every.start_ns[own], kind="stable")]
        rows = np.flatnonzero(samples["thread"] == thread)
        time = samples["time_ns"][rows]
        wait = own[np.maximum(np.searchsorted(every.start_ns[own], time, side="right") - 1, 0)]
        within = (every.start_ns[wait] <= time) & (time < every.end_ns[wait])
        result[rows] = np.where(within, wait, -1)
    return result


def sampled_line(trace: Trace, rows: Integers) -> SampledLine | None:
    """The line with most of the samples during some waits, if these are enough to name it."""
    stack = _stacks_in(trace, rows)
    frame = stack_lines(trace).frame[stack]
    return line_of(trace, frame[frame >= 0], max(LEAST_SAMPLES, LEAST_FRACTION * len(stack)))


def sampled_library(trace: Trace, rows: Integers) -> str | None:
    """The library function with most of the samples during some waits, if these are enough."""
    stack = _stacks_in(trace, rows)
    inner = stack_lines(trace).inner
    count = np.bincount(inner.codes[stack] + 1, minlength=len(inner.values) + 1)[1:]
    if int(count.max(initial=0)) < max(LEAST_SAMPLES, LEAST_FRACTION * len(stack)):
        return None
    return str(inner.values[np.argmax(count)])


def _stacks_in(trace: Trace, rows: Integers) -> Integers:
    """The stacks that were sampled during some waits."""
    inside = np.flatnonzero(groups.isin(sample_waits(trace), rows))
    stack: Integers = trace.recorded("python_samples")["stack"][inside]
    return stack


def line_of(trace: Trace, frame: Integers, least: float) -> SampledLine | None:
    """The line with most of the samples at these frames; None if fewer than `least` are at it.

    Frames of generated code may have no line.
    """
    frames = trace.recorded("python_frames")
    frame = frame[~frames.is_null("line")[frame]]
    if not len(frame):
        return None
    files, lines = frames.texts("file"), frames["line"]
    each = groups.group(files.codes[frame], lines[frame])
    count = groups.count(each)
    most = int(np.argmax(count))
    if count[most] < least:
        return None
    row, texts = int(frame[each.first[most]]), (frames.texts("function"), frames.texts("source"))
    function, source = (text[row] for text in texts)
    file, line, begins = str(files[row]), int(lines[row]), names_functions(trace)
    return SampledLine(file, line, str(function), int(count[most]), source, row, begins)

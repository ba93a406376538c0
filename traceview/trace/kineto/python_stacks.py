"""Python stacks of with_stack=True: of every moment, from the calls that the profiler traced.

Each call of a Python or built-in function is an event with the id of its caller. The stack of a
thread is read off at equal distances, which makes them samples like those of a sampling profiler,
but for its error: nothing was interrupted. The line of a frame is the one where its function
begins, as that is all that Kineto writes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from traceview.tables import (
    NULL,
    Array,
    Integers,
    RowNumbers,
    Texts,
    constant,
    object_array,
)
from traceview.trace.kineto.cpu_work import CpuWork
from traceview.trace.kineto.events import NO_ARGUMENTS, Events
from traceview.trace.kineto.gpu_work import Staged, numbers_of
from traceview.trace.kineto.owners import SettledOwners
from traceview.trace.kineto.values import ABSENT, INT32, Codes, ColumnParts, integers, narrow
from traceview.trace.nsys.names import filled
from traceview.trace.program_files import is_library

LEAST_PERIOD_NS = 10_000
MOST_SAMPLES = 500_000
MOST_DEPTH = 1_024
_BLOCK = 1 << 16
"""Rows that are worked on at a time: temporary arrays of all would exceed the tables."""
_FRAME = re.compile(r"(?P<file>.*)\((?P<line>\d{1,9})\): (?P<function>.*)", re.DOTALL)
_BUILTIN = re.compile(r"<built-in (?:method|function) (\S+)(?: of (\S+) object at 0x[0-9a-f]+)?>")
_MODULE = re.compile(r"nn\.Module: (.*?)(?:_\d+)?$")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
# Kineto cuts the folder of sys.path off; these packages are nobody's own program.
_PACKAGE_NAMES = """
torch torchvision torchaudio torchtext torchao torchdata functorch triton numpy scipy pandas
sklearn PIL cv2 tqdm transformers accelerate datasets diffusers tokenizers safetensors peft timm
lightning pytorch_lightning lightning_fabric torchmetrics deepspeed apex megatron xformers
flash_attn bitsandbytes einops huggingface_hub requests urllib3 packaging pydantic jax jaxlib
flax optax cupy numba ray wandb tensorboard pkg_resources setuptools hydra omegaconf fsspec dill
filelock yaml regex matplotlib networkx sympy IPython ipykernel tornado traitlets zmq
torch_geometric dgl fairscale fbgemm_gpu torchrec pybind11 typing_extensions attr click uvloop
uvicorn fastapi starlette anyio vllm sglang aiter flashinfer traceview_injected
"""
_PACKAGES = frozenset(_PACKAGE_NAMES.split())


@dataclass
class PythonCalls:
    """Calls of Python and built-in functions, gathered chunk by chunk."""

    parts: ColumnParts = field(default_factory=ColumnParts)
    names: Codes = field(default_factory=Codes)

    def add(self, events: Events, work: CpuWork) -> None:
        events, start, end = work.timed(events)
        args = [event.args or NO_ARGUMENTS for event in events]
        self.parts.add(
            start_ns=start,
            end_ns=end,
            thread=work.owners.of(events),
            name=self.names.of([event.name for event in events]),
            # Absent ids and such that are none count as −1.
            id=np.maximum(integers([one.python_id for one in args]), -1),
        )


@dataclass(frozen=True)
class Stacks:
    """Python calls as nested intervals, sorted by thread and start, the caller before its calls.

    `parent` is a row, −1 without one. Calls of the final thread number `thread_of[i]` are the rows
    from `first[i]` to `first[i + 1]`.
    """

    start: Integers
    end: Integers
    name: Array
    parent: RowNumbers
    thread_of: Integers
    first: Integers
    frames: Frames

    def innermost(self, thread: Array, time: Integers) -> Integers:
        """The innermost call on each thread at each time, −1 without one."""
        result = np.full(len(time), -1, np.int64)
        for place, number in enumerate(self.thread_of.tolist()):
            own = np.flatnonzero(thread == number)
            result[own] = self.innermost_on(place, time[own])
        return result

    def innermost_on(self, place: int, time: Integers) -> Integers:
        """The innermost call at each time on the thread `thread_of[place]`, −1 without one."""
        low, high = self.first[place], self.first[place + 1]
        row = low + np.searchsorted(self.start[low:high], time, side="right") - 1
        return self._open(np.where(row < low, -1, row), time)

    def _open(self, row: Integers, time: Integers) -> Integers:
        """The call itself, or its innermost caller that had not ended by then."""
        for _ in range(MOST_DEPTH):
            over = np.flatnonzero((row >= 0) & (self.end[row] <= time)) if len(row) else row
            if not len(over):
                return row
            row[over] = self.parent[row[over]]
        return np.where((row >= 0) & (self.end[row] > time), row, -1)


@dataclass(frozen=True)
class Frames:
    """Per distinct name of a call: file, line (ABSENT without one), function, and what it is."""

    file: list[str]
    line: RowNumbers
    function: list[str]
    builtin: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    user: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def stacks(calls: PythonCalls, settled: SettledOwners) -> Stacks:
    """The nested calls of each thread. The columns of `calls` are forgotten as they are read."""
    parts = calls.parts
    start, end = parts.take("start_ns"), parts.take("end_ns")
    thread = narrow(settled.thread)[parts.narrowed("thread")]
    name = np.maximum(parts.narrowed("name"), 0)
    order = _call_order(start, end, thread, parts.narrowed("id"))
    if order is not None:
        start, end, thread, name = start[order], end[order], thread[order], name[order]
        del order
    parent = _parents(thread, end)
    opens = np.flatnonzero(np.append(True, thread[1:] != thread[:-1])) if len(thread) else thread
    thread_of, first = thread[opens].astype(np.int64), np.append(opens, len(thread))
    frames = _frames(list(calls.names.index))
    return Stacks(start, end, name, parent, thread_of, first.astype(np.int64), frames)


def _call_order(start: Integers, end: Integers, thread: Array, ids: Array) -> Integers | None:
    """The rows of calls that take time, callers first; None if they are in that order already.

    Ids count up, so of calls with equal times the caller has the smallest.
    """
    later = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] < end[:-1]))
    rising = (thread[1:] > thread[:-1]) | ((thread[1:] == thread[:-1]) & later)
    if rising.all() and (end > start).all():
        return None
    order = np.lexsort((ids, -end, start, thread))
    return order[end[order] > start[order]]


def _parents(thread: Array, end: Integers) -> RowNumbers:
    """The row of the innermost call around each one, −1 without one.

    It is the last row before it that ends no earlier, on the same thread. Rows that end earlier are
    skipped by their own candidates, so that long rows of siblings take few rounds. Times decide and
    not the ids of callers: Kineto loses some.
    """
    parent = np.arange(-1, len(end) - 1, dtype=np.int32)
    parent[np.flatnonzero(np.append(True, thread[1:] != thread[:-1]))[: len(end)]] = -1
    for first in range(0, len(end), _BLOCK):
        open_ = first + np.flatnonzero(parent[first : first + _BLOCK] >= 0)
        while len(open_):
            open_ = open_[end[parent[open_]] < end[open_]]
            parent[open_] = parent[parent[open_]]
            open_ = open_[parent[open_] >= 0]
    return parent


def _frames(names: Sequence[str]) -> Frames:
    parsed = [parse_frame(name) for name in names] or [("", ABSENT, "", False)]
    file = [each[0] for each in parsed]
    return Frames(
        file,
        np.array([each[1] for each in parsed], np.int32),
        [each[2] for each in parsed],
        np.array([each[3] for each in parsed], bool),
        np.array([not is_library(each) for each in file], bool),
    )


def parse_frame(name: str) -> tuple[str, int, str, bool]:
    """File, line, function, and whether it is built in; file "" for what has none."""
    if found := _FRAME.fullmatch(name):
        line = int(found["line"])
        return (
            _placed(found["file"]),
            line if 0 < line <= INT32.max else ABSENT,
            found["function"],
            False,
        )
    if found := _BUILTIN.fullmatch(name):
        owner = found[2]
        known = owner and owner not in ("type", "module")
        return "", ABSENT, f"{owner.rsplit('.', 1)[-1]}.{found[1]}" if known else found[1], True
    if found := _MODULE.fullmatch(name):
        return "", ABSENT, found[1] or name, False
    return "", ABSENT, _ADDRESS.sub("", name), True


def _placed(file: str) -> str:
    """The file, below the folder of libraries where it belongs to one."""
    if file.startswith(("/", "<")) or "\\" in file[:4]:
        return file
    top = file.split("/", 1)[0].removesuffix(".py")
    if top in _PACKAGES:
        return f"site-packages/{file}"
    return f"/lib/python3/{file}" if top in sys.stdlib_module_names else file


def python_tables(found: Stacks) -> tuple[Staged, Staged]:
    """The python_samples and python_frames tables; process 0 stands for that of the thread."""
    time, thread, call = _samples(found)
    used, of = np.unique(call, return_inverse=True)
    paths = _paths(found, used)
    stack, frames = _distinct(paths)
    order = np.argsort(time, kind="stable")
    samples: Staged = {
        "time_ns": time[order],
        "thread": thread[order],
        "stack": stack[of.reshape(-1)][order].astype(np.int32),
        "state": Texts(constant(-1, len(time), np.int32), object_array([])),
    }
    return samples, _frame_table(found.frames, frames)


def _samples(found: Stacks) -> tuple[Integers, RowNumbers, RowNumbers]:
    """Time, thread and innermost call at equal distances."""
    spans = [
        (int(found.start[low]), int(found.end[low:high].max()))
        for low, high in zip(found.first[:-1].tolist(), found.first[1:].tolist(), strict=True)
    ]
    total = sum(high - low for low, high in spans)
    period = max(LEAST_PERIOD_NS, total // MOST_SAMPLES)
    times, threads, calls = ([np.zeros(0, kind)] for kind in (np.int64, np.int32, np.int32))
    for place, (low, high) in enumerate(spans):
        for at in range(low, high, _BLOCK * period):
            time = np.arange(at, min(at + _BLOCK * period, high), period)
            call = found.innermost_on(place, time)
            inside = call >= 0
            times.append(time[inside])
            calls.append(call[inside].astype(np.int32))
            threads.append(np.full(len(times[-1]), found.thread_of[place], np.int32))
    return np.concatenate(times), np.concatenate(threads), np.concatenate(calls)


def _paths(found: Stacks, calls: Array) -> list[Array]:
    """Per level from the innermost out, the name of each call's ancestor, −1 beyond the root."""
    levels: list[Array] = []
    above = calls
    while len(above) and (above >= 0).any() and len(levels) < MOST_DEPTH:
        inside = above >= 0
        levels.append(np.where(inside, found.name[np.maximum(above, 0)], found.name.dtype.type(-1)))
        above = np.where(inside, found.parent[np.maximum(above, 0)], -1)
    return levels


def _distinct(levels: list[Array]) -> tuple[Integers, list[Array]]:
    """The number of each path, and the names of distinct paths by level."""
    if not levels:
        return np.zeros(0, np.int64), []
    number = np.zeros(len(levels[0]), np.int64)
    for level in levels:
        pairs = number * (int(level.max()) + 2) + level + 1
        number = np.unique(pairs, return_inverse=True)[1].reshape(-1)
    first = np.unique(number, return_index=True)[1]
    return number, [level[first] for level in levels]


def _frame_table(frames: Frames, levels: list[Array]) -> Staged:
    count = len(levels[0]) if levels else 0
    names = np.stack(levels, axis=1) if levels else np.zeros((0, 0), np.int64)
    stack, depth = np.nonzero(names >= 0)
    name = names[stack, depth]
    file, function = Texts.of(frames.file), Texts.of(frames.function)
    assert not count or int(stack.max()) == count - 1
    return {
        "stack": stack.astype(np.int32),
        "depth": depth.astype(np.int32),
        "file": file.take(name),
        "line": frames.line[name] if len(name) else np.zeros(0, np.int32),
        "function": function.take(name),
        "source": Texts(constant(-1, len(name), np.int32), object_array([])),
    }


_WAITS = re.compile(r"(cuda|cu|hip)\w*(Synchronize|Memcpy|Malloc|Free|HostAlloc|MemAlloc)")


def call_sites(found: Stacks, calls: Staged) -> Staged:
    """The function of the program behind each call that can wait for the GPU.

    Built-in functions are events too, so the call of the program is known: `Tensor.item`.
    """
    names = calls["name"]
    assert isinstance(names, Texts)
    start, end, thread = (numbers_of(calls, name) for name in ("start_ns", "end_ns", "thread"))
    waits = names.isin([str(name) for name in names.values if _WAITS.match(str(name))])
    rows = np.flatnonzero(waits)
    rows = rows[np.lexsort((start[rows], thread[rows]))]
    inner = found.innermost(thread[rows], start[rows])
    user, builtin = _of_program(found, inner)
    kept = user >= 0
    rows, user, builtin = rows[kept], user[kept], builtin[kept]
    frames = found.frames
    name = found.name[user] if len(user) else np.zeros(0, np.int32)
    line = frames.line[name].astype(np.int64)
    function = Texts.of(frames.function).take(name)
    callee = found.name[np.maximum(builtin, 0)] if len(found.name) else name
    hint = Texts.of(frames.function).take(callee)
    hint = Texts(np.where(builtin >= 0, hint.codes, -1).astype(np.int32), hint.values)
    return {
        "start_ns": start[rows],
        "end_ns": end[rows],
        "thread": thread[rows],
        "file": Texts.of(frames.file).take(name),
        "line": np.where(line == ABSENT, NULL, line),
        "function": function,
        "source": filled(hint, ""),
        "hint": hint,
    }


def _of_program(found: Stacks, inner: Integers) -> tuple[Integers, Integers]:
    """The innermost call of the program around each one, and the built-in it called; −1 if none."""
    user, builtin = np.full(len(inner), -1, np.int64), np.full(len(inner), -1, np.int64)
    above = inner
    for _ in range(MOST_DEPTH):
        inside = (above >= 0) & (user < 0)
        if not inside.any():
            break
        name = found.name[np.maximum(above, 0)]
        user = np.where(inside & found.frames.user[name], above, user)
        outermost = inside & found.frames.builtin[name]
        builtin = np.where(outermost, above, builtin)
        above = np.where(inside, found.parent[np.maximum(above, 0)], -1)
    return user, builtin

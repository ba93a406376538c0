"""Python stacks of with_stack=True, sampled from the calls that the profiler traced.

Each call of a Python or built-in function is an event with the id of its caller. The stack of a
thread is evaluated at equal intervals, which gives samples like those of a sampling profiler, but
exact ones. The line of a frame is that of its function's definition, the only one Kineto writes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from traceview.base.records import record
from traceview.base.tables import NULL, Array, Integers, RowNumbers, Texts
from traceview.traces.trace.kineto.columns import ABSENT, INT32
from traceview.traces.trace.kineto.python_calls import (
    CallBlocks,
    ContextTree,
    PythonCalls,
    contexts_at,
)
from traceview.traces.trace.model import is_library
from traceview.traces.trace.nsys.rows import filled
from traceview.traces.trace.staged import Staged, absent_texts, numbers_of

# Names of Python calls parsed: file, line and function, and whether it is the program's own.

_FRAME = re.compile(r"(?P<file>.*)\((?P<line>\d{1,9})\): (?P<function>.*)", re.DOTALL)
_BUILTIN = re.compile(r"<built-in (?:method|function) (\S+)(?: of (\S+) object at 0x[0-9a-f]+)?>")
_MODULE = re.compile(r"nn\.Module: (.*?)(?:_\d+)?$")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
# Kineto cuts off the sys.path folder; a file of one of these packages belongs to a library.
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


@record
class Frames:
    """Columns per distinct call name: file, line (ABSENT if none), function, and the two flags.

    `builtin` is True for built-in functions, `user` for functions of the user's program.
    """

    file: list[str]
    line: RowNumbers
    function: list[str]
    builtin: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    user: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def frames_of(names: Sequence[str]) -> Frames:
    parsed = [parse_frame(name) for name in names] or [("", ABSENT, "", False)]
    file = [frame[0] for frame in parsed]
    return Frames(
        file,
        np.array([frame[1] for frame in parsed], np.int32),
        [frame[2] for frame in parsed],
        np.array([frame[3] for frame in parsed], bool),
        np.array([not is_library(path) for path in file], bool),
    )


def parse_frame(name: str) -> tuple[str, int, str, bool]:
    """File ("" if none), line, function, and whether the function is built in."""
    if match := _FRAME.fullmatch(name):
        line = int(match["line"])
        return (
            _placed(match["file"]),
            line if 0 < line <= INT32.max else ABSENT,
            match["function"],
            False,
        )
    if match := _BUILTIN.fullmatch(name):
        owner = match[2]
        known = owner and owner not in ("type", "module")
        return "", ABSENT, f"{owner.rsplit('.', 1)[-1]}.{match[1]}" if known else match[1], True
    if match := _MODULE.fullmatch(name):
        return "", ABSENT, match[1] or name, False
    return "", ABSENT, _ADDRESS.sub("", name), True


def _placed(file: str) -> str:
    """The file, prefixed with a library folder if it belongs to a package or to Python."""
    if file.startswith(("/", "<")) or "\\" in file[:4]:
        return file
    top = file.split("/", 1)[0].removesuffix(".py")
    if top in _PACKAGES:
        return f"site-packages/{file}"
    return f"/lib/python3/{file}" if top in sys.stdlib_module_names else file


LEAST_PERIOD_NS = 10_000
MOST_SAMPLES = 500_000
_NO_ROWS = np.zeros(0, np.int64)
_WAITS = re.compile(r"(cuda|cu|hip)\w*(Synchronize|Memcpy|Malloc|Free|HostAlloc|MemAlloc)")


def python_tables(calls: PythonCalls, thread: RowNumbers, api_calls: Staged) -> dict[str, Staged]:
    """The python_samples, python_frames and call_sites tables, without the process of each row.

    `thread` is the final number of each provisional thread. The calls are freed as they are read.
    """
    blocks, frames = CallBlocks(calls.parts, thread), frames_of(list(calls.names.index))
    times, waits = _sample_times(blocks), _waiting(api_calls, sorted(blocks.spans))
    start = numbers_of(api_calls, "start_ns")
    wanted = {number: (times[number], start[rows]) for number, rows in waits.items()}
    contexts, tree = contexts_at(blocks, wanted, len(calls.names.index))
    sampled = {number: some for number, (some, _) in contexts.items()}
    used, samples = _samples(times, sampled)
    levels = tree.levels(used)
    names = np.stack(levels, axis=1) if levels else np.zeros((0, 0), np.int32)
    stack, depth = np.nonzero(names >= 0)
    name = names[stack, depth]
    file, function = Texts.of(frames.file), Texts.of(frames.function)
    return {
        "python_samples": samples,
        "python_frames": {
            "stack": stack.astype(np.int32),
            "depth": depth.astype(np.int32),
            "file": file.take(name),
            "line": frames.line[name],
            "function": function.take(name),
            "source": absent_texts(len(name)),
        },
        "call_sites": _call_sites(
            api_calls,
            np.concatenate([_NO_ROWS, *waits.values()]),
            np.concatenate([_NO_ROWS, *(of_waits for _, of_waits in contexts.values())]),
            tree,
            frames,
        ),
    }


def _sample_times(calls: CallBlocks) -> dict[int, Integers]:
    """Equidistant times per thread, from the start of its first call to the end of its last."""
    spans = sorted(calls.spans.items())
    total = sum(span.end_ns - span.first_ns for _, span in spans)
    period = max(LEAST_PERIOD_NS, total // MOST_SAMPLES)
    return {number: np.arange(span.first_ns, span.end_ns, period) for number, span in spans}


def _samples(
    times: Mapping[int, Integers], contexts: Mapping[int, RowNumbers]
) -> tuple[Integers, Staged]:
    """The contexts that occur, and the python_samples table, whose stacks are indices into them."""
    inside = {number: some >= 0 for number, some in contexts.items()}
    time = np.concatenate([_NO_ROWS, *(times[number][rows] for number, rows in inside.items())])
    no_codes = np.zeros(0, np.int32)
    stack = np.concatenate([no_codes, *(contexts[number][rows] for number, rows in inside.items())])
    counts = [int(np.count_nonzero(rows)) for rows in inside.values()]
    thread = np.repeat(np.array([*inside], np.int32), counts)
    occurs = np.zeros(int(stack.max(initial=-1)) + 1, bool)
    occurs[stack] = True
    stack = (np.cumsum(occurs, dtype=np.int32) - np.int32(1))[stack]
    if len(inside) > 1:
        order = np.argsort(time, kind="stable")
        time, thread, stack = time[order], thread[order], stack[order]
    return np.flatnonzero(occurs), {
        "time_ns": time,
        "thread": thread,
        "stack": stack,
        "state": absent_texts(len(time)),
    }


def _waiting(calls: Staged, threads: Sequence[int]) -> dict[int, Integers]:
    """The rows of each thread's calls that can wait for the GPU, in order of their start."""
    names = calls["name"]
    assert isinstance(names, Texts)
    start, thread = (numbers_of(calls, name) for name in ("start_ns", "thread"))
    rows = np.flatnonzero(
        names.isin([str(name) for name in names.values if _WAITS.match(str(name))])
    )
    rows = rows[np.argsort(start[rows], kind="stable")]
    return {number: rows[thread[rows] == number] for number in threads}


def _call_sites(
    calls: Staged, rows: Integers, contexts: RowNumbers, tree: ContextTree, frames: Frames
) -> Staged:
    """The function of the user's program behind each API call that can wait for the GPU.

    Built-in functions are events, too, so `hint` names the one it called, such as `Tensor.item`.
    """
    user, builtin = _of_program(tree.levels(contexts), len(contexts), frames)
    kept = user >= 0
    rows, user, builtin = rows[kept], user[kept], builtin[kept]
    line = frames.line[user].astype(np.int64)
    hint = Texts.of(frames.function).take(np.maximum(builtin, 0))
    hint = Texts(np.where(builtin >= 0, hint.codes, -1).astype(np.int32), hint.values)
    return {
        **{name: numbers_of(calls, name)[rows] for name in ("start_ns", "end_ns", "thread")},
        "file": Texts.of(frames.file).take(user),
        "line": np.where(line == ABSENT, NULL, line),
        "function": Texts.of(frames.function).take(user),
        "source": filled(hint, ""),
        "hint": hint,
    }


def _of_program(levels: list[Array], count: int, frames: Frames) -> tuple[Integers, Integers]:
    """The innermost function of the user's program per stack, and the built-in it called; −1: none.

    `levels` go from the innermost function out.
    """
    user, builtin = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    for name in levels:
        above = (name >= 0) & (user < 0)
        builtin = np.where(above & frames.builtin[name], name, builtin)
        user = np.where(above & frames.user[name], name, user)
    return user, builtin

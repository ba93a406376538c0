"""Note each frame that torch.compile compiles: the time, why again, and where its graph breaks.

The hooks wrap functions of torch._dynamo of 2.4 to 2.13. Where one is missing, its part of the
story is; a failure of ours never reaches the program.
"""

from __future__ import annotations

import sys
from _thread import _local
from functools import wraps
from time import perf_counter_ns

from . import python_events
from .sync_call_sites import FRAMEWORK, USER, innermost, rank_of, source_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

COMPILATION, RECOMPILATION, BREAK = "compilation", "recompilation", "graph-break"
LIMIT, UNCOMPILED, BACKWARD = "compile-limit", "uncompiled", "backward-compilation"
_RESUMED = "torch_dynamo_resume_in_"
"""Of the functions for the rest of a frame behind a graph break, such as `…step_at_31`."""
_CASES = {"generic_jump": "Data-dependent branching"}
"""Reasons that begin with torch's name of the case, such as `generic_jump TensorVariable()`."""
_REASONS = ("get_and_maybe_log_recompilation_reasons", "get_and_maybe_log_recompilation_reason")
_LIMITS = ("exceeds_recompile_limit", "exceeds_cache_size_limit")

_now: Any = _local()
"""The frame that each thread compiles, as `frame`."""


class _Frame:
    """What is known of a frame while it is compiled.

    `breaks` are function, text of the line and reason, by file and line.
    """

    def __init__(self) -> None:
        self.reason, self.limit = "", ""
        self.breaks: dict[tuple[str, int], tuple[str, str, str]] = {}


def wrap_frames(convert_frame: Any) -> None:
    """Note the frames compiled by torch._dynamo.convert_frame, and why."""
    convert_frame._compile = _noted(convert_frame._compile)
    for names, keep in ((_REASONS, _keep_reason), (_LIMITS, _keep_limit)):
        for name in names:
            if hasattr(convert_frame, name):
                setattr(convert_frame, name, _observed(getattr(convert_frame, name), keep))
    _watch_backward(sys.modules.get("torch._dynamo.callback"))


def wrap_graphs(output_graph: Any) -> None:
    """Note the graph breaks of torch._dynamo.output_graph.OutputGraph."""
    graph, compiles = output_graph.OutputGraph, output_graph.OutputGraph.compile_subgraph

    @wraps(compiles)
    def compile_subgraph(self: Any, *args: Any, **kwargs: Any) -> Any:
        _quietly(_keep_break, (*args, *kwargs.values()))
        return compiles(self, *args, **kwargs)

    graph.compile_subgraph = compile_subgraph


def _quietly(call: Callable[..., None], *args: Any) -> None:
    try:
        call(*args)
    except Exception:  # The program must not notice.
        return


def _observed(original: Any, keep: Callable[[_Frame, Any], None]) -> Any:
    """`original`, whose result is kept with the frame."""

    @wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        _quietly(lambda: keep(_now.frame, result))
        return result

    return function


def _keep_reason(frame: _Frame, reasons: Any) -> None:
    """The guard of the latest code that failed: `0/1: n == 3   # return x + n  # train.py:7`."""
    if reasons:
        text = str(reasons[0] if isinstance(reasons, list) else reasons).partition("\n")[0]
        number, _, guard = text.partition(": ")
        frame.reason = (guard if "/" in number else text).partition("  #")[0].strip()


def _keep_limit(frame: _Frame, exceeded: Any) -> None:
    if isinstance(exceeded, tuple) and exceeded[0]:
        frame.limit = str(exceeded[1])


def _keep_break(values: tuple[Any, ...]) -> None:
    reason = next((each for each in values if getattr(each, "graph_break", False)), None)
    if reason is not None:
        stack = list(reason.user_stack)
        own = [each for each in stack if rank_of(each.filename) == USER]
        at = (own or stack)[-1]
        # A frame that is traced again finds the same breaks.
        text = str(reason.reason).partition("\n")[0]
        case = text.partition(" ")[0]
        if "_" in case and case.isidentifier():
            text = _CASES.get(case, "")
        _now.frame.breaks[at.filename, at.lineno] = (_shown(at.name), at.line or "", text)


def _noted(original: Any) -> Any:
    """`_compile`, whose calls become events."""

    @wraps(original)
    def _compile(code: Any, *args: Any, **kwargs: Any) -> Any:
        before, _now.frame = getattr(_now, "frame", None), _Frame()
        began, error = perf_counter_ns(), None
        try:
            return original(code, *args, **kwargs)
        except BaseException as raised:
            error = raised
            raise
        finally:
            frame, _now.frame = _now.frame, before
            _quietly(_write, code, frame, perf_counter_ns() - began, error)

    return _compile


def _write(code: Any, frame: _Frame, took_ns: int, error: BaseException | None) -> None:
    where = code.co_filename, code.co_firstlineno, _shown(code.co_name), ""
    if rank_of(code.co_filename) == FRAMEWORK:
        where = _caller() or where
    kind, reason = RECOMPILATION if frame.reason else COMPILATION, frame.reason
    if frame.limit:
        kind, reason = LIMIT, f"{frame.limit}: {frame.reason}"
    elif type(error).__name__ == "Unsupported":
        kind, reason = UNCOMPILED, str(error).partition("\n")[0]
    guards_ns = 0 if error else _guards_ns(code)
    python_events.add(kind, took_ns, *where, reason, guards_ns)
    for (file, line), told in frame.breaks.items():
        python_events.add(BREAK, 0, file, line, *told)


def _shown(function: str) -> str:
    """The function that the program has, of one for the rest of a frame behind a graph break."""
    if function.startswith(_RESUMED):
        function = function.removeprefix(_RESUMED).rpartition("_at_")[0]
    return function


def _caller() -> tuple[str, int, str, str] | None:
    """File, line, function and text of the user's line that is being executed."""
    frame = innermost(sys._getframe(1))
    code = frame.f_code
    if rank_of(code.co_filename) != USER:
        return None
    return code.co_filename, frame.f_lineno, code.co_name, source_of(frame)


def _guards_ns(code: Any) -> int:
    """Time of one check of the guards of the code just compiled, as torch measured it, or 0."""
    utils = sys.modules.get("torch._dynamo.utils")
    measured: list[Any] = getattr(utils, "get_compilation_metrics", list)()
    if not measured or getattr(measured[-1], "co_name", None) != code.co_name:
        return 0
    return int(1_000 * (getattr(measured[-1], "guard_latency_us", None) or 0))


def _watch_backward(callback: Any) -> None:
    """Note the compilation of a backward pass, which comes when it first runs (torch 2.7 on)."""
    handler = getattr(callback, "callback_handler", None)
    if handler is None or not hasattr(callback, "CallbackTrigger"):
        return
    began: list[int] = []

    def starts(_: Any) -> None:
        began[:] = [perf_counter_ns()]

    def ends(event: Any) -> None:
        trigger = getattr(getattr(event, "callback_trigger", None), "name", "")
        if trigger == "LAZY_BACKWARD" and began:
            took_ns = perf_counter_ns() - began[0]
            where = _caller() or ("<torch.compile>", 0, "backward", "")
            _quietly(python_events.add, BACKWARD, took_ns, *where)

    handler.register_start_callback(starts)
    handler.register_end_callback(ends)

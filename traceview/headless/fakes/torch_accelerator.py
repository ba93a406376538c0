"""A fake torch.accelerator, PyTorch's device-independent API, over the fake torch.cuda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_OF_CUDA = (
    "is_available device_count set_stream synchronize empty_cache reset_peak_memory_stats "
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats"
)
_RENAMED = {
    "current_device_index": "current_device",
    "current_device_idx": "current_device",
    "set_device_index": "set_device",
    "set_device_idx": "set_device",
    "device_index": "device",
    "get_memory_info": "mem_get_info",
    "empty_host_cache": "empty_cache",
    "reset_accumulated_memory_stats": "reset_peak_memory_stats",
    "current_stream": "current_stream",
}


def install(torch: Any) -> None:
    """Forward torch.accelerator to the fake torch.cuda."""
    names = {name: name for name in _OF_CUDA.split()} | _RENAMED
    answers = {name: _like(getattr(torch.cuda, known)) for name, known in names.items()}
    answers["current_accelerator"] = lambda *_, **__: torch.device("cuda")
    for name in answers.keys() & vars(torch.accelerator).keys():
        setattr(torch.accelerator, name, answers[name])


def _like(known: Callable[..., Any]) -> Callable[..., Any]:
    """A distinct function of the same effect, because Dynamo compares functions by identity."""
    return lambda *arguments, **keywords: known(*arguments, **keywords)


def disable_stream_tracing() -> None:
    """Keep Dynamo from querying the current stream and from tracing others."""
    from torch._dynamo.variables import streams

    # Dynamo queries it at the start of each function, and accepts only PyTorch's own class.
    state: Any = streams.SymbolicStreamState
    state.__init__ = lambda self: setattr(self, "cur_stream_stack", [])
    state.cur_stream = state.enter_stream = _refuse
    context: Any = streams.StreamContextVariable
    context.create = _refuse


def _refuse(*_: Any, **__: Any) -> None:
    raise NotImplementedError("--compile cannot follow the CUDA streams of a compiled function")

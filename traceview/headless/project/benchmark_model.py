"""A file in the form of KernelBench, whose model its harness builds and calls.

Such a file defines `ModelNew` (or `Model`), `get_inputs` and `get_init_inputs`, and launches
nothing when it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

_MODELS = ("ModelNew", "Model")
_INPUTS, _INIT_INPUTS = "get_inputs", "get_init_inputs"


def harness_of(names: Mapping[str, Any]) -> tuple[str, Callable[[], object]] | None:
    """The call that a harness makes, as text, and a function that makes it; None without one."""
    model = next((name for name in _MODELS if isinstance(names.get(name), type)), None)
    if model is None or not callable(names.get(_INPUTS)):
        return None
    given = f"*{_INIT_INPUTS}()" if callable(names.get(_INIT_INPUTS)) else ""

    def call() -> object:
        settings = names[_INIT_INPUTS]() if given else ()
        built = names[model](**settings) if isinstance(settings, dict) else names[model](*settings)
        inputs = [_on_gpu(each) for each in names[_INPUTS]()]
        return _on_gpu(built)(*inputs)

    return f"{model}({given})(*{_INPUTS}())", call


def _on_gpu(value: Any) -> Any:
    with suppress(AttributeError):
        return value.cuda()
    return value

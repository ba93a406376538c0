"""Files whose kernels are launched by an external harness, and the call that it makes.

A file in the form of KernelBench defines `ModelNew` (or `Model`), `get_inputs` and
`get_init_inputs`. The graph of a model that Inductor (torch.compile) has generated defines `call`
and, to be timed, `get_args` or `benchmark_compiled_module`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from traceview.records import record

_MODELS = ("ModelNew", "Model")


@record
class Harness:
    """A call as text, the harness that makes it (`owner`), and a function that makes it."""

    text: str
    owner: str
    call: Callable[[], object]


def harness_of(names: Mapping[str, Any]) -> Harness | None:
    """The harness of a file with these names; None where no form is known."""
    return _of_model(names) or _of_graph(names)


def _of_model(names: Mapping[str, Any]) -> Harness | None:
    model = next((name for name in _MODELS if isinstance(names.get(name), type)), None)
    if model is None or not callable(names.get("get_inputs")):
        return None
    given = "*get_init_inputs()" if callable(names.get("get_init_inputs")) else ""

    def call() -> object:
        settings = names["get_init_inputs"]() if given else ()
        built = names[model](**settings) if isinstance(settings, dict) else names[model](*settings)
        inputs = [_on_gpu(each) for each in names["get_inputs"]()]
        return _on_gpu(built)(*inputs)

    return Harness(f"{model}({given})(*get_inputs())", "KernelBench", call)


def _of_graph(names: Mapping[str, Any]) -> Harness | None:
    call, arguments = names.get("call"), names.get("get_args")
    timed = names.get("benchmark_compiled_module")
    if not callable(call) or not callable(timed):
        return None
    if callable(arguments):
        return Harness("call(get_args())", "Inductor", lambda: call(arguments()))
    text = "benchmark_compiled_module(times=1, repeat=1)"
    return Harness(text, "Inductor", lambda: timed(times=1, repeat=1))


def _on_gpu(value: Any) -> Any:
    with suppress(AttributeError):
        return value.cuda()
    return value

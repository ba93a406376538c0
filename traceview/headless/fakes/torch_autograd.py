"""torch.compile with a backward pass: autograd needs a real device, so it is traced on the CPU.

Only the joint graph of both passes is traced there. It is moved to the fake GPU before Inductor's
own passes, so that the kernels are those of the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from traceview.headless.fakes import torch_cuda

Compiler = Callable[..., Any]


def install(torch: Any) -> None:
    """Replace AOTAutograd where Inductor calls it."""
    from torch._dynamo.backends import common
    from torch._inductor import compile_fx

    real = common.aot_autograd

    def aot_autograd(**keywords: Any) -> Compiler:
        def compiled(graph: Any, inputs: Sequence[Any]) -> Any:
            if not (torch.is_grad_enabled() and any(map(_needs_gradient, inputs))):
                return real(**keywords)(graph, inputs)
            _move(graph, torch.device("cpu"))
            values = _values(inputs, torch.device("cpu"))
            with _on_cpu(True):
                return real(**keywords | _moving_back(torch, keywords))(graph, values)

        return compiled

    # Inductor of 2.11 imports it by name; that of 2.13 calls it through its module.
    for module in (common, compile_fx):
        if vars(module)["aot_autograd"] is real:
            vars(module)["aot_autograd"] = aot_autograd


def _moving_back(torch: Any, keywords: dict[str, Any]) -> dict[str, Compiler]:
    """Inductor's callbacks of AOTAutograd, run for the fake GPU."""
    gpu = torch.device("cuda", 0)
    partition = keywords["partition_fn"]

    def partitioned(graph: Any, _: Sequence[Any], **options: Any) -> Any:
        with _on_cpu(False):
            _move(graph, gpu)
            _propagate(graph, _values(_inputs_of(graph), gpu))
            return partition(graph, _inputs_of(graph), **options)

    def on_gpu(compile_: Compiler) -> Compiler:
        def compiled(graph: Any, _: Any) -> Any:
            with _on_cpu(False):
                return compile_(graph, _inputs_of(graph))

        return compiled

    passes = {name: on_gpu(keywords[name]) for name in ("fw_compiler", "bw_compiler")}
    return {"partition_fn": partitioned, **passes}


@contextmanager
def _on_cpu(yes: bool) -> Iterator[None]:
    before = torch_cuda.tracing.on_cpu
    torch_cuda.tracing.on_cpu = yes
    try:
        yield
    finally:
        torch_cuda.tracing.on_cpu = before


def _needs_gradient(value: Any) -> bool:
    return bool(getattr(value, "requires_grad", False))


def _inputs_of(graph: Any) -> list[Any]:
    return [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]


def _move(graph: Any, device: Any) -> None:
    from torch.fx.node import map_aggregate

    def moved(value: Any) -> Any:
        named = isinstance(value, str) and value.partition(":")[0] == "cuda"
        return device if named or isinstance(value, type(device)) else value

    for node in graph.graph.nodes:
        node.args, node.kwargs = map_aggregate(node.args, moved), map_aggregate(node.kwargs, moved)
    graph.recompile()


def _values(inputs: Sequence[Any], device: Any) -> list[Any]:
    """Fake tensors like these on a device; numbers unchanged."""
    import torch
    from torch._guards import detect_fake_mode

    mode: Any = detect_fake_mode(inputs)

    def alike(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        # Finds the fake tensor that Dynamo has made of this tensor.
        known = mode.from_tensor(value)
        with mode:
            tensor = torch.empty_strided(
                known.shape, known.stride(), dtype=known.dtype, device=device
            )
        return tensor.requires_grad_(known.requires_grad)

    return [alike(value) for value in inputs]


def _propagate(graph: Any, inputs: Sequence[Any]) -> None:
    from torch._guards import detect_fake_mode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    FakeTensorProp(graph, detect_fake_mode(inputs)).propagate_dont_convert_inputs(*inputs)

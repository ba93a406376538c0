"""torch.compile without a GPU, forwards and backwards, through Inductor on the fake one.

Experimental: it patches private parts of PyTorch, which change from release to release. The patches
are applied at the first call of torch.compile, as importing Inductor takes seconds. Installed in
the worker process and never removed.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from traceview.kernels.headless.events import places_in
from traceview.kernels.headless.fakes import torch_cuda, torch_values
from traceview.kernels.headless.fakes.torch_cuda import torch_
from traceview.kernels.headless.fakes.triton_driver import Gpu, NoLaunchDriver, Trials, answer

# torch.compile with a backward pass: autograd needs a real device, so it is traced on the CPU.
#
# Only the joint graph of both passes is traced there. It is moved to the fake GPU before
# Inductor's own passes, so that the kernels are those of the GPU.

Compiler = Callable[..., Any]


def install_autograd(torch: Any) -> None:
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
    from torch._guards import detect_fake_mode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    gpu = torch.device("cuda", 0)
    partition = keywords["partition_fn"]

    def partitioned(graph: Any, _: Sequence[Any], **options: Any) -> Any:
        with _on_cpu(False):
            _move(graph, gpu)
            inputs = _values(_inputs_of(graph), gpu)
            FakeTensorProp(graph, detect_fake_mode(inputs)).propagate_dont_convert_inputs(*inputs)
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


TESTED = ("2.11", "2.13")
_ONE_MS = 1.0


def skip(skipped: Callable[[], None]) -> None:
    """Make torch.compile return its argument; `skipped` is called when that is used."""
    torch = torch_()

    def compile_(model: Any = None, **options: Any) -> Any:
        if model is None:
            return functools.partial(compile_, **options)
        if isinstance(model, torch.nn.Module) or not hasattr(model, "__name__"):
            skipped()
            return model

        @functools.wraps(model)
        def called(*arguments: Any, **keywords: Any) -> Any:
            skipped()
            return model(*arguments, **keywords)

        return called

    torch.compile = compile_
    torch.nn.Module.compile = lambda *_, **__: skipped()
    # No graph is captured either, so that torch.library.wrap_triton gives the kernel itself.
    with suppress(ImportError):
        from torch._library import triton

        triton.wrap_triton_enabled_default = False


def install(gpu: Gpu, trials: Trials, note: Callable[[str], None]) -> None:
    """Let torch.compile generate kernels; `note` gets a warning at the first call."""
    torch = torch_()
    real = torch.compile

    @functools.cache
    def prepare() -> None:
        note(_experimental(torch.__version__))
        run_generated(gpu, trials)

    def compile_(*arguments: Any, **keywords: Any) -> Any:
        prepare()
        return real(*arguments, **keywords)

    torch.compile = compile_


def run_generated(gpu: Gpu, trials: Trials) -> None:
    """Let code that Inductor has generated run without a GPU."""
    torch = torch_()
    # Register the fake driver with Triton's backends, where Inductor looks it up.
    from triton.backends import backends

    known = backends["nvidia"]
    backends["nvidia"] = type(known)(compiler=known.compiler, driver=NoLaunchDriver)
    _register_device(torch, gpu)
    torch_values.install_device_guard(torch)
    _create_on_cpu(torch)
    _stub_benchmarks(trials)
    torch_cuda.disable_stream_tracing()
    install_autograd(torch)
    torch.version.cuda = torch.version.cuda or "13.0"
    torch._C._cuda_getCurrentRawStream = lambda *_: 0
    torch._C._cuda_cudaCachingAllocator_is_enabled = lambda: True
    from torch._functorch import config as functorch_config
    from torch._inductor import config

    # Keep the stack traces of the operations that are fused into a kernel.
    config.trace.provenance_tracking_level = 1
    # A cached graph has none.
    config.fx_graph_cache = functorch_config.enable_autograd_cache = False


def places_of(name: str) -> Sequence[str]:
    """A remark on the source lines of the operations in an Inductor kernel, if known."""
    import sys

    debug = sys.modules.get("torch._inductor.debug")
    stacks = getattr(debug, "_inductor_kernel_stack_trace", {})
    pytorch = str(Path(torch_().__file__).parent)
    traces = (s for key, each in stacks.items() if key.partition(":")[0] == name for s in each)
    places = list(dict.fromkeys(places_in(traces, [pytorch])))
    return (f"its operations are at {', '.join(places)}",) if places else ()


def _experimental(version: str) -> str:
    tested = f"tested with PyTorch {' and '.join(TESTED)}"
    this = "" if version.startswith(tuple(f"{each}." for each in TESTED)) else f", not {version}"
    return (
        f"--compile is experimental ({tested}{this}): where Inductor selects by timing, its "
        "first candidate is shown as launched"
    )


def _register_device(torch: Any, gpu: Gpu) -> None:
    from torch._dynamo import device_interface

    properties = torch.cuda.get_device_properties(0)
    answers = {
        "current_device": 0,
        "set_device": None,
        "device_count": 1,
        "synchronize": None,
        "get_device_properties": properties,
        "get_raw_stream": 0,
        "exchange_device": 0,
        "maybe_exchange_device": 0,
        "memory_allocated": 0,
        "is_bf16_supported": True,
        "is_available": True,
        "get_compute_capability": gpu.number,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
    }
    known: Any = device_interface.CudaInterface
    fixed = {name: staticmethod(answer(value)) for name, value in answers.items()}
    shown = {name: getattr(torch.cuda, name) for name in ("device", "Event", "Stream")}
    worker = type("Worker", (known.Worker,), fixed)
    interface: Any = type("FakeCuda", (known,), fixed | shown | {"Worker": worker})
    device_interface.get_interface_for_device("cpu")  # registers all others first
    for name in ("cuda", "cuda:0"):
        device_interface.register_interface_for_device(name, interface)


def _create_on_cpu(torch: Any) -> None:
    """Create tensors of PyTorch and of generated code on the CPU, set to zero."""
    guards = torch._C._dynamo.guards
    strided = guards._empty_strided_cpu
    guards._empty_strided_cuda = lambda *arguments: strided(*arguments).zero_()
    real_empty, real_strided = torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided

    def empty(size: Any, **options: Any) -> Any:
        return real_empty(size, **options | {"device": torch.device("cpu")}).zero_()

    def empty_strided(size: Any, stride: Any, **options: Any) -> Any:
        return real_strided(size, stride, **options | {"device": torch.device("cpu")}).zero_()

    library = torch.library.Library("aten", "IMPL", "CUDA")
    with warnings.catch_warnings():
        # A build with CUDA warns that its own are replaced.
        warnings.simplefilter("ignore", UserWarning)
        library.impl("empty.memory_format", empty, "CUDA")
        library.impl("empty_strided", empty_strided, "CUDA")
    torch._traceview_library = library  # unregistered when this object is freed


def _stub_benchmarks(trials: Trials) -> None:
    """Replace Inductor's benchmarks and CUDA graph capture by one call each."""
    from torch._inductor import compile_fx
    from torch._inductor.runtime import benchmarking

    def benchmark(
        _: Any, fn: Callable[..., Any], fn_args: Any = (), fn_kwargs: Any = None, **__: Any
    ) -> float:
        with trials.one():
            fn(*(fn_args or ()), **(fn_kwargs or {}))
        return _ONE_MS

    def of_nothing(_: Any, _callable: Callable[[], Any], *__: Any, **___: Any) -> float:
        return benchmark(None, _callable)

    replaced = {"benchmark": benchmark, "benchmark_gpu": of_nothing, "benchmark_cpu": of_nothing}
    for kind in type(benchmarking.benchmarker).__mro__:
        for name in replaced.keys() & vars(kind).keys():
            setattr(kind, name, replaced[name])
    vars(compile_fx)["cudagraphify"] = lambda model, *_, **__: model

"""torch.compile without a GPU: Inductor generates its Triton kernels for the pretended one.

Experimental: it reaches into private parts of PyTorch, which change from release to release.
Everything is put in place at the first call of torch.compile, as importing Inductor takes seconds.
Installed in a process of its own and never taken out again.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from traceview.headless.fakes import torch_accelerator
from traceview.headless.fakes import torch_autograd as pretend_backward
from traceview.headless.fakes import torch_device_guard as pretend_guard
from traceview.headless.fakes.triton_driver import Gpu, NoLaunchDriver, Trials
from traceview.headless.inductor_sources import places_in

TESTED = ("2.11", "2.13")
_ONE_MS = 1.0


def pass_over(told: Callable[[], None]) -> None:
    """Let torch.compile change nothing; `told` is called when what it was given is used."""
    torch = _torch()

    def compile_(model: Any = None, **options: Any) -> Any:
        if model is None:
            return functools.partial(compile_, **options)
        if isinstance(model, torch.nn.Module) or not hasattr(model, "__name__"):
            told()
            return model

        @functools.wraps(model)
        def called(*arguments: Any, **keywords: Any) -> Any:
            told()
            return model(*arguments, **keywords)

        return called

    torch.compile = compile_
    torch.nn.Module.compile = lambda *_, **__: told()


def install(gpu: Gpu, trials: Trials, note: Callable[[str], None]) -> None:
    """Let torch.compile do its work; `note` is told once what to think of it."""
    torch = _torch()
    real = torch.compile

    @functools.cache
    def prepare() -> None:
        note(_experimental(torch.__version__))
        _prepare(torch, gpu, trials)

    def compile_(*arguments: Any, **keywords: Any) -> Any:
        prepare()
        return real(*arguments, **keywords)

    torch.compile = compile_


def places_of(name: str) -> Sequence[str]:
    """A remark on the lines of the program whose operations are in a kernel of Inductor's."""
    import sys

    debug = sys.modules.get("torch._inductor.debug")
    stacks = getattr(debug, "_inductor_kernel_stack_trace", {})
    ours = str(Path(_torch().__file__).parent)
    found = (s for key, held in stacks.items() if key.partition(":")[0] == name for s in held)
    places = list(dict.fromkeys(places_in(found, [ours])))
    return (f"its operations are at {', '.join(places)}",) if places else ()


def _experimental(version: str) -> str:
    tested = f"tested with PyTorch {' and '.join(TESTED)}"
    this = "" if version.startswith(tuple(f"{each}." for each in TESTED)) else f", not {version}"
    return (
        f"--compile is experimental ({tested}{this}): where Inductor selects by timing, its "
        "first candidate is shown as launched"
    )


def _torch() -> Any:
    """PyTorch without its types, which forbid what is done to it here."""
    import torch

    return torch


def _prepare(torch: Any, gpu: Gpu, trials: Trials) -> None:
    _offer_driver()
    _offer_device(torch, gpu)
    pretend_guard.install(torch)
    _make_on_cpu(torch)
    _time_nothing(trials)
    torch_accelerator.leave_streams()
    pretend_backward.install(torch)
    torch.version.cuda = torch.version.cuda or "13.0"
    torch._C._cuda_getCurrentRawStream = lambda *_: 0
    torch._C._cuda_cudaCachingAllocator_is_enabled = lambda: True
    from torch._functorch import config as functorch_config
    from torch._inductor import config

    # Keeps the stack traces of the operations that go into a kernel.
    config.trace.provenance_tracking_level = 1
    # A graph out of a cache has none.
    config.fx_graph_cache = functorch_config.enable_autograd_cache = False


def _offer_driver() -> None:
    """Inductor takes its driver from Triton's backends, unless it is the active one."""
    from triton.backends import backends

    known = backends["nvidia"]
    backends["nvidia"] = type(known)(compiler=known.compiler, driver=NoLaunchDriver)


def _offer_device(torch: Any, gpu: Gpu) -> None:
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
    fixed = {name: staticmethod(_answer(value)) for name, value in answers.items()}
    shown = {name: getattr(torch.cuda, name) for name in ("device", "Event", "Stream")}
    worker = type("Worker", (known.Worker,), fixed)
    interface: Any = type("PretendedCuda", (known,), fixed | shown | {"Worker": worker})
    device_interface.get_interface_for_device("cpu")  # it fills in the others first
    for name in ("cuda", "cuda:0"):
        device_interface.register_interface_for_device(name, interface)


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _make_on_cpu(torch: Any) -> None:
    """Tensors that PyTorch itself and the generated code make on the GPU; zero, as elsewhere."""
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
        # A build with CUDA has its own, and says that they are replaced.
        warnings.simplefilter("ignore", UserWarning)
        library.impl("empty.memory_format", empty, "CUDA")
        library.impl("empty_strided", empty_strided, "CUDA")
    torch._traceview_library = library  # it holds for as long as this object lives


def _time_nothing(trials: Trials) -> None:
    """Inductor times configurations and captures CUDA graphs: the kernels run once for either."""
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

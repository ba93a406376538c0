"""A fake torch.cuda and torch.accelerator: tensors on the CPU that report device "cuda".

Monkey-patches, no TorchFunctionMode: a mode is disabled during a backward pass, so that a user's
backward() would bypass it. Installed in the worker process and never removed.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from traceview.base.hardware import limits_of
from traceview.kernels.headless.fakes.triton_driver import Event, Gpu, answer

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


def install_accelerator(torch: Any) -> None:
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


CUDA_VERSION = "13.0"
_GIB = 1 << 30
_LIKE = "empty_like zeros_like ones_like full_like rand_like randn_like randint_like"
_NEW = "new_empty new_zeros new_ones new_full new_tensor new_empty_strided"
_NOTHING = (
    "synchronize set_device empty_cache init _lazy_init manual_seed manual_seed_all ipc_collect "
    "reset_peak_memory_stats reset_max_memory_allocated set_rng_state set_stream "
    "set_per_process_memory_fraction check_error"
)
_YES = "is_available is_initialized is_bf16_supported"
_STREAM = "current_stream default_stream stream"
_ZERO = "memory_allocated max_memory_allocated memory_reserved max_memory_reserved current_device"


def install(gpu: Gpu, unchecked: Callable[[str], None] | None) -> None:
    """Install the fakes.

    With `unchecked`, comparisons of values pass, as no kernel has computed any; it is called with
    the name of each comparison.
    """
    torch = torch_()
    for name, value in _cuda_fakes(torch, gpu).items():
        setattr(torch.cuda, name, value)
        if name in vars(torch.cuda.memory):
            setattr(torch.cuda.memory, name, value)
    # A build for the CPU has no version, which projects that ask for a GPU's features compare.
    torch.version.cuda = torch.version.cuda or CUDA_VERSION
    torch.cuda.nvtx._nvtx = _Ranges()
    install_accelerator(torch)
    _replace_factories(torch)
    _replace_defaults(torch)
    _replace_tensor(torch)
    torch.nn.Module.cuda = lambda self, *_, **__: self
    if unchecked:
        _let_comparisons_pass(torch, unchecked)


class _Context:
    """A stub of the context managers of torch.cuda, such as torch.cuda.device(0)."""

    idx = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class Stream(_Context):
    """A fake CUDA stream; also the context manager that makes one current."""

    cuda_stream = 0
    synchronize = wait_stream = wait_event = answer(None)
    query = answer(True)
    is_capturing = answer(False)

    def record_event(self, event: Event | None = None) -> Event:
        """The event, which is complete at once."""
        return event or Event()


class _Graph(_Context):
    """A fake CUDA graph: kernels compile during capture, and a replay does nothing."""

    capture_begin = capture_end = replay = reset = answer(None)


class _Ranges:
    """A stub of NVTX, which a build without CUDA lacks."""

    def __getattr__(self, _: str) -> Callable[..., int]:
        return answer(0)


class _Properties:
    """The result of torch.cuda.get_device_properties; sizes in bytes."""

    def __init__(self, gpu: Gpu) -> None:
        limits = limits_of(gpu.capability)
        self.name = f"sm_{gpu.number} (fake)"
        self.major, self.minor = divmod(gpu.number, 10)
        self.multi_processor_count = gpu.sm_count
        self.total_memory = 80 * _GIB
        self.warp_size = 32
        self.L2_cache_size = 50 << 20
        self.max_threads_per_multi_processor = limits.threads_per_sm
        self.max_threads_per_block = limits.threads_per_block
        self.regs_per_multiprocessor = limits.registers_per_sm
        self.shared_memory_per_block = limits.shared_bytes_per_block
        self.shared_memory_per_block_optin = limits.opt_in_shared_bytes_per_block
        self.shared_memory_per_multiprocessor = limits.shared_bytes_per_sm
        self.gcnArchName = ""


def torch_() -> Any:
    """PyTorch as Any, as its types forbid patching it."""
    import torch

    return torch


def _cuda_fakes(torch: Any, gpu: Gpu) -> dict[str, Any]:
    properties = _Properties(gpu)
    answers: dict[str, Any] = {"Event": Event, "Stream": Stream, "CUDAGraph": _Graph}
    # Dynamo compares by identity: each name needs its own function or class.
    contexts = ["graph", "device", "device_of", "_DeviceGuard"]
    answers |= {name: type(name, (_Context,), {}) for name in contexts}
    stream = Stream()
    for names, value in ((_NOTHING, None), (_ZERO, 0), (_YES, True), (_STREAM, stream)):
        answers |= {name: answer(value) for name in names.split()}
    return answers | {
        "device_count": answer(1),
        "is_current_stream_capturing": answer(False),
        "get_device_capability": answer(divmod(gpu.number, 10)),
        "get_device_name": answer(properties.name),
        "get_device_properties": answer(properties),
        "get_rng_state": answer(torch.zeros(16, dtype=torch.uint8)),
        "mem_get_info": answer((80 * _GIB, 80 * _GIB)),
        "memory_stats": answer(defaultdict(int)),
        "memory_summary": answer(""),
    }


@dataclass
class _Tracing:
    """Whether torch.compile is tracing for the CPU instead of the GPU."""

    on_cpu: bool = False


tracing = _Tracing()


def _is_traced() -> bool:
    """Whether torch.compile is tracing the program, with fake tensors.

    Dynamo folds the first test to a constant; the second is for code that it calls.
    """
    import torch

    if torch.compiler.is_dynamo_compiling():
        return True
    modes: Any = torch._C
    kinds = modes._TorchDispatchModeKey
    return any(map(modes._get_dispatch_mode, (kinds.FAKE, kinds.PROXY, kinds.FUNCTIONAL)))


def _is_traced_on_gpu() -> bool:
    return _is_traced() and not tracing.on_cpu


def _on_cpu(device: Any) -> Any:
    import torch

    if _is_traced_on_gpu():
        # The GPU with its index, which PyTorch would otherwise query from CUDA.
        if type(device) is int or device == "cuda":
            return torch.device("cuda", device if type(device) is int else 0)
        if isinstance(device, torch.device) and device.type == "cuda" and device.index is None:
            return torch.device("cuda", 0)
        return device
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type == "cuda" else device
    if isinstance(device, str):
        return "cpu" if device.partition(":")[0] == "cuda" else device
    return "cpu" if type(device) is int else device


def _replace_factories(torch: Any) -> None:
    from torch.utils import _device

    constructors: list[Any] = list(_device._device_constructors())
    for function in constructors:
        name = function.__name__
        if getattr(torch, name, None) is function:
            setattr(torch, name, _redirected(getattr(torch, name)))
    for owner, names in ((torch, _LIKE), (torch.Tensor, _NEW)):
        for name in names.split():
            setattr(owner, name, _redirected(getattr(owner, name)))


def _redirected(make: Callable[..., Any]) -> Callable[..., Any]:
    """A factory whose tensors are on the CPU, and zero instead of uninitialized.

    A program may use as an index what a kernel would have written there.
    """
    empty = "empty" in make.__name__

    @functools.wraps(make)
    def made(*arguments: Any, **keywords: Any) -> Any:
        if "device" in keywords:
            keywords["device"] = _on_cpu(keywords["device"])
        keywords.pop("pin_memory", None)
        tensor = make(*arguments, **keywords)
        if empty and not _is_traced():
            tensor.detach().zero_()
        return tensor

    return made


def _replace_defaults(torch: Any) -> None:
    """Patch torch.set_default_device("cuda"), `with torch.device("cuda")` and generators."""
    from torch.utils import _device

    DeviceContext: Any = _device.DeviceContext  # noqa: N806 (a class)
    real_init, real_generator = DeviceContext.__init__, torch.Generator

    def init(self: Any, device: Any) -> None:
        real_init(self, torch.device(_on_cpu(device)))

    def new(cls: Any, device: Any = "cpu") -> Any:
        return real_generator.__new__(cls, device=_on_cpu(device))

    DeviceContext.__init__ = init
    torch.Generator = type("Generator", (real_generator,), {"__new__": new})


def _replace_tensor(torch: Any) -> None:
    real_to, real_device, gpu = torch.Tensor.to, torch.Tensor.device, torch.device("cuda", 0)

    def to(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if "device" in keywords:
            keywords["device"] = _on_cpu(keywords["device"])
        return real_to(self, *map(_on_cpu, arguments), **keywords)

    def cuda(self: Any, *_: Any, **__: Any) -> Any:
        return real_to(self, gpu) if _is_traced_on_gpu() else self

    def device(self: Any) -> Any:
        # Fake tensors, and those that torch.compile traces, report their own device.
        really = real_device.__get__(self)
        return gpu if really.type == "cpu" and not tracing.on_cpu else really

    torch.Tensor.to, torch.Tensor.cuda = to, cuda
    torch.Tensor.pin_memory = lambda self, *_, **__: self
    torch.Tensor.is_cuda = property(lambda self: self.device.type == "cuda")
    torch.Tensor.is_cpu = property(lambda self: self.device.type == "cpu")
    torch.Tensor.device = property(device)
    torch.Tensor.get_device = lambda self: self.device.index or 0
    torch.Tensor.record_stream = lambda *_: None


def _let_comparisons_pass(torch: Any, unchecked: Callable[[str], None]) -> None:
    import triton.testing

    def passing(name: str, answer: bool | None) -> Callable[..., bool | None]:
        def passed(*_: Any, **__: Any) -> bool | None:
            unchecked(name)
            return answer

        return passed

    torch.allclose = passing("torch.allclose", True)
    torch.testing.assert_close = passing("torch.testing.assert_close", None)
    triton.testing.assert_close = passing("triton.testing.assert_close", None)

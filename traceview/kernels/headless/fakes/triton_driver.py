"""A fake Triton driver for a machine without a GPU: kernels compile as usual, none is launched.

The only file that uses Triton's private names; it supports 3.6, 3.7 and 3.9. It is installed in the
worker process (traceview.kernels.headless.worker.main) and never removed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from traceview.base.hardware import limits_of, part_of
from traceview.base.records import record
from traceview.kernels.ptx.cubin import resources

_ONE_MS = 1.0
_SOME_REGISTERS, _MOST_THREADS = 32, 1024

Launched = Callable[[Any, Any, tuple[int, int, int], Sequence[Any]], None]
Rejected = Callable[[Any, Mapping[str, Any], Exception], None]
"""Is given Triton's source object, the compile options and the error."""
REPORTED = "traceview_reported"
"""An attribute of errors that `rejected` has been given."""
Ahead = Callable[[Callable[[], Any]], Callable[[], None]]
"""Starts a function in another process; returns a function that waits for it."""


@record
class Gpu:
    """The fake GPU; `capability` is its compute capability, such as "9.0"."""

    capability: str

    @property
    def number(self) -> int:
        """The capability as Triton writes it: 90."""
        return int(self.capability.replace(".", ""))

    @property
    def sm_count(self) -> int:
        """The number of SMs that programs see; persistent kernels derive their grid from it."""
        return part_of(self.capability).sm_count

    @property
    def shared_bytes(self) -> int:
        """The maximum shared memory per block."""
        return limits_of(self.capability).opt_in_shared_bytes_per_block

    @property
    def target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.number, 32)


def answer(value: Any) -> Callable[..., Any]:
    """A function of any arguments that returns a value."""
    return lambda *_, **__: value


class Event:
    """A fake CUDA event: everything takes one millisecond."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    record = synchronize = wait = answer(None)
    query = answer(True)
    elapsed_time = answer(_ONE_MS)


@dataclass
class Trials:
    """Tracks whether kernels are being timed: launches of a benchmark, not of the program."""

    depth: int = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Mark launches in this context as timed."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def bench(
        self,
        call: Callable[[], Any],
        *_: Any,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        **__: Any,
    ) -> Any:
        """A stub of do_bench: call once, to compile. Times are in milliseconds."""
        with self.one():
            call()
        if quantiles is None:
            return [_ONE_MS] if return_mode == "all" else _ONE_MS
        return [_ONE_MS] * len(quantiles) if len(quantiles) > 1 else _ONE_MS


class _Stub:
    """Has every method; each does nothing."""

    def __init__(self, *_: Any) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return answer(None)


class _Utils(_Stub):
    """A fake of Triton's libcuda wrapper."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def load_binary(self, name: str, cubin: bytes, *_: Any) -> tuple[int, str, int, int, int]:
        """Module, function, registers, 4-byte words of local memory, maximum threads per block.

        Programs size persistent grids by the registers, so they are those of the cubin.
        """
        found = resources(cubin).get(name)
        if found is None:
            return 1, name, _SOME_REGISTERS, 0, _MOST_THREADS
        words = found.stack_bytes // 4
        return 1, name, found.registers, words, found.max_threads or _MOST_THREADS

    def get_device_properties(self, *_: Any) -> dict[str, int]:
        """Properties as of an H100; clocks in kHz, bus width in bits."""
        return {
            "max_shared_mem": self._gpu.shared_bytes,
            "max_num_regs": 65_536,
            "multiprocessor_count": self._gpu.sm_count,
            "warpSize": 32,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 5120,
        }

    def cuOccupancyMaxActiveClusters(self, *_: Any) -> int:  # noqa: N802 (libcuda's name)
        return self._gpu.sm_count


class NoLaunchDriver:
    """The fake of Triton's CUDA driver; `launched` is called for every launch."""

    def __init__(self, gpu: Gpu, launched: Launched, trials: Trials) -> None:
        self._gpu, self._trials = gpu, trials
        self.utils = _Utils(gpu)
        self.launcher_cls = functools.partial(_Launcher, launched)

    is_active = staticmethod(answer(True))
    get_current_device = get_current_stream = answer(0)
    set_current_device = clear_cache = allocate_default_profile_scratch = answer(None)

    def get_current_target(self) -> Any:
        return self._gpu.target

    def get_device_capability(self, *_: Any) -> tuple[int, int]:
        return divmod(self._gpu.number, 10)

    def map_python_to_cpp_type(self, type_: str) -> str:
        from triton.backends.nvidia.driver import ty_to_cpp

        return str(ty_to_cpp(type_))

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        return self._trials.bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """A tensor to clear between the runs of a benchmark: there is no cache to clear."""
        import torch

        return torch.empty(1)

    def assemble_tensormap_to_arg(self, _: Any, arguments: Any) -> Any:
        return arguments


class _Launcher:
    """The fake launcher that Triton creates for each compiled kernel."""

    def __init__(self, launched: Launched, source: Any, metadata: Any) -> None:
        self._launched, self._source, self._metadata = launched, source, metadata

    def __call__(self, x: int, y: int, z: int, *rest: Any) -> None:
        _stream, _function, _packed, launch_metadata, enter, leave, *arguments = rest
        if enter is not None and launch_metadata is not None:
            enter(launch_metadata)
        self._launched(self._source, self._metadata, (int(x), int(y), int(z)), arguments)
        if leave is not None and launch_metadata is not None:
            leave(launch_metadata)


@dataclass
class Overrides:
    """Values that replace what the program passes; `used` are the names that matched a kernel.

    `values` are constexprs by name, `options` num_warps and num_stages. `kernel` restricts both
    to one kernel. `grid` is that of the launch in progress, as the program passes it.
    """

    values: Mapping[str, Any]
    options: Mapping[str, int]
    kernel: str | None = None
    used: set[str] = field(default_factory=set)
    grid: Any = None

    def apply(
        self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a launch with the overrides applied."""
        if self.kernel not in (None, function.__name__):
            return arguments, keywords
        names = list(function.arg_names)
        values = {name: value for name, value in self.values.items() if name in names}
        self.used |= set(values)
        placed = tuple(values.pop(n, a) for n, a in zip(names, arguments, strict=False))
        return placed, keywords | values | dict(self.options)


def install(
    gpu: Gpu,
    *,
    compiled: Callable[..., None],
    launched: Launched,
    overrides: Overrides,
    some_configs: Callable[[str, list[Any]], list[Any]],
    ahead: Ahead | None = None,
    rejected: Rejected = lambda *_: None,
    configuring: Callable[[Any], None] = lambda _: None,
    skips_failures: bool = False,
) -> Trials:
    """Install the fake driver; `compiled` is called for every compilation, `rejected` if it fails.

    `some_configs` selects configurations of an autotuned kernel, by its name. `ahead` compiles in
    another process, so that two configurations of an autotuner are compiled at the same time.
    `configuring` is called with each before it is compiled, and with None after it. With
    `skips_failures` a launch outside an autotuner returns None if its kernel cannot be compiled.
    """
    import triton.compiler
    import triton.testing
    from triton import knobs
    from triton.compiler import CompiledKernel
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    # A script that sets TRITON_INTERPRET would define kernels that are never compiled.
    knobs.runtime.interpret = False
    trials = Trials()
    driver.set_active(NoLaunchDriver(gpu, launched, trials))
    listen(compiled)
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = trials.bench
    triton.compiler.compile = _reporting(triton.compiler.compile, rejected)
    CompiledKernel._init_handles = _fitting(CompiledKernel._init_handles, rejected)
    run = _skipping(JITFunction.run, trials) if skips_failures else JITFunction.run
    JITFunction.run = _overriding(run, overrides)
    Autotuner.prune_configs = _some_of(Autotuner.prune_configs, some_configs)
    Autotuner._bench = _announced(Autotuner._bench, configuring)
    if ahead:
        Autotuner._bench = _in_pairs(Autotuner._bench, ahead)
    return trials


def track(created: Callable[[Any], None]) -> None:
    """Call `created` with every jitted, autotuned or heuristic function, once it is created.

    Functions that are defined within another function are included.
    """
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    for kind in (JITFunction, Autotuner, Heuristics):
        kind.__init__ = _tracked(kind.__init__, created)


def _tracked(real: Callable[..., None], created: Callable[[Any], None]) -> Callable[..., None]:
    @functools.wraps(real)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        real(self, *arguments, **keywords)
        created(self)

    return init


def listen(compiled: Callable[..., None] | None) -> None:
    """Make `compiled` the only listener of compilations; None for no listener."""
    from triton import knobs

    knobs.compilation.listener = compiled


def allow_plain_globals(allow: bool) -> None:
    """Let kernels read plain globals, as Triton 2 did, or only if the user allows it.

    What is compiled then is cached apart, as it has the key of code that Triton refuses.
    """
    from triton import knobs

    allowed, folder = _plain_globals_at_start()
    knobs.compilation.allow_non_constexpr_globals = allow or allowed
    knobs.cache.dir = f"{folder}-globals" if allow and not allowed else folder


@functools.cache
def _plain_globals_at_start() -> tuple[bool, str]:
    from triton import knobs

    return knobs.compilation.allow_non_constexpr_globals, knobs.cache.dir


def options_of(target: Any) -> set[str]:
    """The names of Triton's compile options for a target."""
    from triton.compiler import make_backend

    return set(vars(make_backend(target).parse_options({})))


def changed_options(target: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The compile options of a kernel that are not Triton's defaults for its target, by name."""
    from triton.compiler import make_backend

    defaults = vars(make_backend(target).parse_options({}))
    # Of a kernel from the cache they were read from JSON, which has lists for tuples.
    return {
        name: metadata[name]
        for name, default in defaults.items()
        if name in metadata and json.dumps(metadata[name]) != json.dumps(default)
    }


def _overriding(run: Callable[..., Any], overrides: Overrides) -> Callable[..., Any]:
    @functools.wraps(run)
    def changed(self: Any, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        arguments, keywords = overrides.apply(self, arguments, keywords)
        overrides.grid = grid
        return run(self, *arguments, grid=grid, warmup=warmup, **keywords)

    return changed


def _reporting(compile_: Callable[..., Any], rejected: Rejected) -> Callable[..., Any]:
    @functools.wraps(compile_)
    def reported(src: Any, target: Any = None, options: Any = None, **keywords: Any) -> Any:
        try:
            return compile_(src, target=target, options=options, **keywords)
        except Exception as error:
            error.__dict__[REPORTED] = True
            rejected(src, dict(options or {}), error)
            raise

    return reported


def _fitting(load: Callable[..., Any], rejected: Rejected) -> Callable[..., Any]:
    """Loading a kernel, which fails if it needs more of the GPU's memories than there is."""
    from triton.runtime.errors import OutOfResources

    @functools.wraps(load)
    def loaded(self: Any) -> Any:
        try:
            return load(self)
        except OutOfResources as error:
            rejected(self.src, self.metadata._asdict(), error)
            raise

    return loaded


def _skipping(run: Callable[..., Any], trials: Trials) -> Callable[..., Any]:
    from triton.runtime.errors import OutOfResources

    @functools.wraps(run)
    def skipped(*arguments: Any, **keywords: Any) -> Any:
        try:
            return run(*arguments, **keywords)
        except Exception as error:
            # An autotuner needs the error, to leave the configuration out.
            is_of_kernel = REPORTED in error.__dict__ or isinstance(error, OutOfResources)
            if trials.depth or not is_of_kernel:
                raise
            return None

    return skipped


def _some_of(
    prune: Callable[..., list[Any]], some: Callable[[str, list[Any]], list[Any]]
) -> Callable[..., list[Any]]:
    @functools.wraps(prune)
    def pruned(self: Any, *arguments: Any) -> list[Any]:
        name = str(getattr(self.base_fn, "__name__", "an autotuned kernel"))
        self.traceview_chosen = some(name, list(prune(self, *arguments)))
        return list(self.traceview_chosen)

    return pruned


def _announced(bench: Callable[..., Any], configuring: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(bench)
    def announced(self: Any, *arguments: Any, config: Any, **keywords: Any) -> Any:
        configuring(config)
        try:
            return bench(self, *arguments, config=config, **keywords)
        finally:
            configuring(None)

    return announced


def _in_pairs(bench: Callable[..., Any], ahead: Ahead) -> Callable[..., Any]:
    """While a configuration is compiled, compile the next one into the cache."""

    @functools.wraps(bench)
    def paired(self: Any, *arguments: Any, config: Any, **keywords: Any) -> Any:
        chosen = getattr(self, "traceview_chosen", [])
        at = next((at for at, each in enumerate(chosen) if each is config), len(chosen))
        following = chosen[at + 1 : at + 2] if at % 2 == 0 else []
        waits = [
            ahead(functools.partial(bench, self, *arguments, config=each, **keywords))
            for each in following
        ]
        try:
            return bench(self, *arguments, config=config, **keywords)
        finally:
            for wait in waits:
                wait()

    return paired


class _Answer(int):
    """A truth value that is also callable, as some versions have a method, not an attribute."""

    def __call__(self) -> bool:
        return bool(self)


def install_newer() -> None:
    """Answer `GPUTarget.is_cuda_backend` and the like, and replace cuBLAS by a stub."""
    from triton._C.libtriton import nvidia
    from triton.backends.compiler import GPUTarget

    target: Any = GPUTarget
    target.__getattr__ = _asked
    if hasattr(nvidia, "cublas"):
        nvidia.cublas.CublasLt = _Stub


def _asked(self: Any, name: str) -> _Answer:
    if not name.startswith("is_"):
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
    return _Answer("cuda" in name or "nvidia" in name)

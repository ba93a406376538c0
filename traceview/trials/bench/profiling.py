"""What a call is and does: its tensors, its memory, its operators and their kernels.

Turns the events of torch.profiler into a tree of operators with kernels as leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.trials.bench.measurement import Timing, benchmark
from traceview.trials.bench.operation import Operation

_ROOT = "all"
_NO_OPERATOR = "(launched by no operator)"


@dataclass
class Frame:
    """An operator or a kernel at one place in the tree, summed over its calls.

    `cpu_ns` and `gpu_ns` are exclusive: without the frames below.
    """

    name: str
    kind: str
    cpu_ns: int = 0
    gpu_ns: int = 0
    calls: int = 0
    children: dict[tuple[str, str], Frame] = field(default_factory=dict)

    def child(self, name: str, kind: str) -> Frame:
        """The child of that name and kind; created if there is none."""
        return self.children.setdefault((kind, name), Frame(name, kind))

    def total_ns(self, gpu: bool) -> int:
        """Inclusive time: its own and that of all frames below."""
        exclusive_ns = self.gpu_ns if gpu else self.cpu_ns
        return exclusive_ns + sum(below.total_ns(gpu) for below in self.children.values())

    def add_kernel(self, name: str, duration_us: float) -> None:
        """Add a run of a kernel that this operator launched."""
        kernel = self.child(name, "kernel")
        kernel.calls += 1
        kernel.gpu_ns += max(round(duration_us * 1000), 0)

    def walk(self, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Frame]]:
        """Every frame below this one, with the names on the path to it, outermost first."""
        for frame in self.children.values():
            path = (*above, frame.name)
            yield path, frame
            yield from frame.walk(path)


@record
class KernelOfOperator:
    """A kernel by the operator that launched it: `operator` is the innermost of `path`."""

    operator: str
    path: tuple[str, ...]
    kernel: str
    calls: int
    total_ns: int


@record
class OperatorTime:
    """An operator over all calls: exclusive CPU time, and GPU time of the kernels it launched."""

    operator: str
    calls: int
    cpu_ns: int
    gpu_ns: int


@record
class Profile:
    """Operators and kernels, longest first. `on_gpu` is False if nothing ran on a GPU."""

    operators: tuple[OperatorTime, ...]
    kernels: tuple[KernelOfOperator, ...]
    tree: Frame
    on_gpu: bool
    calls: int


def profile(run: Callable[[], Any], calls: int = 3, warmup: int = 1) -> Profile:
    """Profile `calls` calls of `run` after `warmup` calls.

    Raises InputError if `calls` is less than 1, and whatever `run` raises.
    """
    if calls < 1 or warmup < 0:
        raise InputError(
            f"{calls} calls to profile after {warmup} warm-up calls", "profile at least one call"
        )
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    has_gpu = torch.cuda.is_available()
    synchronize: Callable[[], Any] = torch.cuda.synchronize if has_gpu else lambda: None
    for _ in range(warmup):
        run()
    synchronize()
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * has_gpu]
    with profiler(activities=activities, acc_events=True) as recorded:
        for _ in range(calls):
            run()
        synchronize()
    events = list(recorded.events())
    tree = Frame(_ROOT, "root")
    for event in events:
        _add(tree, event)
    _add_orphans(tree, events)
    kernels = [
        KernelOfOperator(path[-2], path[:-1], frame.name, frame.calls, frame.gpu_ns)
        for path, frame in tree.walk()
        if frame.kind == "kernel" and len(path) > 1
    ]
    by_time = sorted(kernels, key=lambda kernel: -kernel.total_ns)
    return Profile(_operators(tree), tuple(by_time), tree, bool(kernels), calls)


def _add(tree: Frame, event: Any) -> None:
    """Add a CPU event below its callers, and its kernels below it.

    Our own final synchronization and the steps of the profiler are left out.
    """
    ours = str(event.name).startswith(("cudaDeviceSynchronize", "ProfilerStep"))
    if "CPU" not in str(event.device_type) or ours:
        return
    stack = [event]
    while stack[-1].cpu_parent is not None:
        stack.append(stack[-1].cpu_parent)
    frame = tree
    for caller in reversed(stack):
        frame = frame.child(caller.name, "operator")
    frame.calls += 1
    frame.cpu_ns += max(round(event.self_cpu_time_total * 1000), 0)
    for kernel in event.kernels:
        frame.add_kernel(kernel.name, kernel.duration)


def _add_orphans(tree: Frame, events: Iterable[Any]) -> None:
    """Add kernels that no torch operator launched, such as those of Triton's own launcher."""
    adopted: Counter[str] = Counter()
    for _, frame in tree.walk():
        if frame.kind == "kernel":
            adopted[frame.name] += frame.calls
    for event in events:
        if "CUDA" not in str(event.device_type) or getattr(event, "is_user_annotation", False):
            continue
        adopted[event.name] -= 1
        if adopted[event.name] < 0:
            launcher = tree.child(_NO_OPERATOR, "operator")
            launcher.add_kernel(event.name, event.time_range.elapsed_us())


def _operators(tree: Frame) -> tuple[OperatorTime, ...]:
    times: dict[str, Counter[str]] = {}
    for _, frame in tree.walk():
        if frame.kind == "operator":
            gpu_ns = sum(k.gpu_ns for k in frame.children.values() if k.kind == "kernel")
            total = times.setdefault(frame.name, Counter())
            total.update(calls=frame.calls, cpu_ns=frame.cpu_ns, gpu_ns=gpu_ns)
    operators = [OperatorTime(name, **total) for name, total in times.items()]
    return tuple(sorted(operators, key=lambda operator: (-operator.gpu_ns, -operator.cpu_ns)))


@record
class TensorFacts:
    """One tensor. `least`, `greatest` and `mean` are over its finite values; None if it has none.

    For complex numbers they are over the magnitudes. `bytes` counts its elements, `storage_bytes`
    the memory that it keeps alive.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    contiguous: bool
    bytes: int
    storage_bytes: int
    least: float | None
    greatest: float | None
    mean: float | None
    nan_count: int
    inf_count: int


@record
class Description:
    """A call: its tensors, its time, and its peak GPU memory beyond the inputs.

    `arguments` are the inputs that are not tensors, or tensors without strides, such as sparse
    ones. `peak_memory_bytes` is None on a CPU.
    """

    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    arguments: tuple[str, ...]
    timing: Timing
    peak_memory_bytes: int | None


def describe(
    operation: Operation | Callable[..., Any], *inputs: Any, trials: int = 10
) -> Description:
    """Call an operation's reference, or any function, and describe the call.

    Finds tensors in nested tuples, lists and mappings. If an input or output is on a GPU, that GPU
    is timed. Raises what the call raises, and InputError for inputs that an Operation does not
    take.
    """
    run = operation.reference if isinstance(operation, Operation) else operation
    if isinstance(operation, Operation):
        operation.check(*inputs)
    results = run(*inputs)
    outputs = results if isinstance(results, tuple | list) else (results,)
    leaves_in = [leaf for i, value in enumerate(inputs) for leaf in _Named(f"input {i}", value)]
    leaves_out = [leaf for i, value in enumerate(outputs) for leaf in _Named(f"output {i}", value)]
    values = [leaf.value for leaf in (*leaves_in, *leaves_out)]
    gpu = next((str(value.device) for value in values if getattr(value, "is_cuda", False)), None)
    others = [leaf.value for leaf in leaves_in if not leaf.is_plain]
    facts_in, facts_out = (
        tuple(_facts(leaf) for leaf in side if leaf.is_plain) for side in (leaves_in, leaves_out)
    )
    # The results must not count as memory of the next call.
    del results, outputs, leaves_out, values
    timing = benchmark(lambda: run(*inputs), 1, trials, device=gpu or "cpu", budget_s=2.0)
    peak_bytes = _peak_bytes(run, inputs, gpu) if gpu else None
    arguments = tuple(" ".join(repr(value).split())[:80] for value in others)
    return Description(facts_in, facts_out, arguments, timing, peak_bytes)


@record
class _Named:
    """An input or output and its name: `input 0`, `input 1[2]`, `output 0['loss']`."""

    name: str
    value: Any

    def __iter__(self) -> Iterator[_Named]:
        """The leaves of nested tuples, lists and mappings."""
        value = self.value
        if not isinstance(value, Mapping | tuple | list):
            yield self
            return
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _Named(f"{self.name}[{key!r:.40}]", inner)

    @property
    def is_plain(self) -> bool:
        """Whether it is a tensor with strides and values: not sparse, nested, quantized or meta."""
        tensor = self.value
        strided = str(getattr(tensor, "layout", None)) == "torch.strided"
        return strided and not (tensor.is_nested or tensor.is_quantized or tensor.is_meta)


def _peak_bytes(run: Callable[..., Any], inputs: tuple[Any, ...], gpu: str) -> int:
    import torch

    torch.cuda.synchronize(gpu)
    before = torch.cuda.memory_allocated(gpu)
    torch.cuda.reset_peak_memory_stats(gpu)
    run(*inputs)
    torch.cuda.synchronize(gpu)
    return int(torch.cuda.max_memory_allocated(gpu) - before)


def _facts(named: _Named) -> TensorFacts:
    """Facts of a tensor with values."""
    import torch

    tensor = named.value
    values = tensor.detach()
    if values.is_complex():
        values = values.abs()
    if values.is_floating_point() and values.element_size() == 1:
        # torch cannot test some of these types for finiteness; float32 represents them all.
        values = values.float()
    finite = values.isfinite()
    count = int(finite.sum())
    nan_count = int(values.isnan().sum())
    least = greatest = mean = None
    if count:
        # Copies nothing if all values are finite.
        values = values if count == values.numel() else values[finite]
        if values.dtype in (torch.uint16, torch.uint32, torch.uint64):
            # torch can do little more with these than convert them.
            values = values.double()
        least, greatest = map(float, torch.aminmax(values))
        mean = float(values.sum(dtype=torch.float64)) / count
    return TensorFacts(
        name=named.name,
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=tensor.device.type,
        contiguous=bool(tensor.is_contiguous()),
        bytes=tensor.numel() * tensor.element_size(),
        storage_bytes=tensor.untyped_storage().nbytes(),
        least=least,
        greatest=greatest,
        mean=mean,
        nan_count=nan_count,
        inf_count=tensor.numel() - count - nan_count,
    )

"""What a call does: its operators and their kernels.

Turns the events of torch.profiler into a tree of operators with kernels as leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from traceview.base.errors import InputError
from traceview.base.records import record

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

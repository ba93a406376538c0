"""Profile a call: the operators it runs, the kernels each launches, and their times.

Turns the events of torch.profiler into a tree of operators with kernels as leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from traceview.errors import InputError
from traceview.records import record

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
        own = self.gpu_ns if gpu else self.cpu_ns
        return own + sum(each.total_ns(gpu) for each in self.children.values())

    def walk(self, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Frame]]:
        """Every frame below this one, with the names on the path to it, outermost first."""
        for each in self.children.values():
            path = (*above, each.name)
            yield path, each
            yield from each.walk(path)


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
            f"{calls} calls to profile after {warmup} warm-up calls",
            "profile at least one call",
        )
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    for _ in range(warmup):
        run()
    _synchronize()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if _has_gpu() else [])]
    with profiler(activities=activities, acc_events=True) as recorded:
        for _ in range(calls):
            run()
        _synchronize()
    events = list(recorded.events())
    tree = Frame(_ROOT, "root")
    for event in events:
        _add(tree, event)
    _add_orphans(tree, events)
    kernels = _kernels(tree)
    return Profile(_operators(tree), kernels, tree, bool(kernels), calls)


def _add(tree: Frame, event: Any) -> None:
    """Add a CPU event below its callers, and its kernels below it."""
    if "CPU" not in str(event.device_type) or _is_ours(event):
        return
    frame = tree
    for each in _callers(event):
        frame = frame.child(each.name, "operator")
    frame.calls += 1
    frame.cpu_ns += max(round(event.self_cpu_time_total * 1000), 0)
    for kernel in event.kernels:
        leaf = frame.child(kernel.name, "kernel")
        leaf.calls += 1
        leaf.gpu_ns += max(round(kernel.duration * 1000), 0)


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
            leaf = tree.child(_NO_OPERATOR, "operator").child(event.name, "kernel")
            leaf.calls += 1
            leaf.gpu_ns += max(round(event.time_range.elapsed_us() * 1000), 0)


def _callers(event: Any) -> list[Any]:
    """The event and its callers, outermost first."""
    stack = [event]
    while stack[0].cpu_parent is not None:
        stack.insert(0, stack[0].cpu_parent)
    return stack


def _is_ours(event: Any) -> bool:
    """Whether an event is our own final synchronization, or a step of the profiler."""
    return str(event.name).startswith(("cudaDeviceSynchronize", "ProfilerStep"))


def _operators(tree: Frame) -> tuple[OperatorTime, ...]:
    operators: dict[str, OperatorTime] = {}
    for _, frame in tree.walk():
        if frame.kind != "operator":
            continue
        gpu_ns = sum(each.gpu_ns for each in frame.children.values() if each.kind == "kernel")
        before = operators.get(frame.name, OperatorTime(frame.name, 0, 0, 0))
        operators[frame.name] = OperatorTime(
            frame.name,
            before.calls + frame.calls,
            before.cpu_ns + frame.cpu_ns,
            before.gpu_ns + gpu_ns,
        )
    return tuple(sorted(operators.values(), key=lambda each: (-each.gpu_ns, -each.cpu_ns)))


def _kernels(tree: Frame) -> tuple[KernelOfOperator, ...]:
    kernels = [
        KernelOfOperator(path[-2], path[:-1], frame.name, frame.calls, frame.gpu_ns)
        for path, frame in tree.walk()
        if frame.kind == "kernel" and len(path) > 1
    ]
    return tuple(sorted(kernels, key=lambda each: -each.total_ns))


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _synchronize() -> None:
    if _has_gpu():
        import torch

        torch.cuda.synchronize()

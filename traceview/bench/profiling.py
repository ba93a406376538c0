"""Which operators a call runs, which kernels each launches, and how long these take.

torch.profiler tells; here its events become a tree of operators, with the kernels as leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from traceview.errors import InputError

_ROOT = "all"
_NO_OPERATOR = "(launched by no operator)"


@dataclass
class Frame:
    """An operator, or a kernel, at one place of the tree, all its calls added up.

    `cpu_ns` and `gpu_ns` are its own, without what is under it.
    """

    name: str
    kind: str
    cpu_ns: int = 0
    gpu_ns: int = 0
    calls: int = 0
    children: dict[tuple[str, str], Frame] = field(default_factory=dict)

    def child(self, name: str, kind: str) -> Frame:
        """The frame of that name under this one, made if there is none."""
        return self.children.setdefault((kind, name), Frame(name, kind))

    def total_ns(self, gpu: bool) -> int:
        """Its own time and that of all under it."""
        own = self.gpu_ns if gpu else self.cpu_ns
        return own + sum(each.total_ns(gpu) for each in self.children.values())

    def walk(self, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Frame]]:
        """Every frame under this one with the names from the outermost down to it."""
        for each in self.children.values():
            path = (*above, each.name)
            yield path, each
            yield from each.walk(path)


@dataclass(frozen=True)
class KernelOfOperator:
    """A kernel as one operator launched it. `operator` is the innermost, `path` all of them."""

    operator: str
    path: tuple[str, ...]
    kernel: str
    calls: int
    total_ns: int


@dataclass(frozen=True)
class OperatorTime:
    """An operator, all its calls. `cpu_ns` is its own on the CPU, `gpu_ns` that of its kernels."""

    operator: str
    calls: int
    cpu_ns: int
    gpu_ns: int


@dataclass(frozen=True)
class Profile:
    """`kernels` is empty where nothing ran on a GPU: `on_gpu` tells. Longest first."""

    operators: tuple[OperatorTime, ...]
    kernels: tuple[KernelOfOperator, ...]
    tree: Frame
    on_gpu: bool
    calls: int


def profile(run: Callable[[], Any], calls: int = 3, warmup: int = 1) -> Profile:
    """Profile so many calls of `run` after a warm-up.

    Raises InputError without a call, and what `run` raises.
    """
    if calls < 1 or warmup < 0:
        raise InputError(f"a profile of {calls} calls after {warmup}", "ask for one or more")
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
    """One event of the CPU, at its place under those that called it; kernels hang from it."""
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
    """Kernels that no operator of torch launched, such as Triton's own launcher."""
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
    """The event behind those that called it, the outermost first."""
    found = [event]
    while found[0].cpu_parent is not None:
        found.insert(0, found[0].cpu_parent)
    return found


def _is_ours(event: Any) -> bool:
    """The wait at the end, and the profiler's own steps."""
    return str(event.name).startswith(("cudaDeviceSynchronize", "ProfilerStep"))


def _operators(tree: Frame) -> tuple[OperatorTime, ...]:
    found: dict[str, OperatorTime] = {}
    for _, frame in tree.walk():
        if frame.kind != "operator":
            continue
        own = sum(each.gpu_ns for each in frame.children.values() if each.kind == "kernel")
        known = found.get(frame.name, OperatorTime(frame.name, 0, 0, 0))
        found[frame.name] = OperatorTime(
            frame.name,
            known.calls + frame.calls,
            known.cpu_ns + frame.cpu_ns,
            known.gpu_ns + own,
        )
    return tuple(sorted(found.values(), key=lambda each: (-each.gpu_ns, -each.cpu_ns)))


def _kernels(tree: Frame) -> tuple[KernelOfOperator, ...]:
    found = [
        KernelOfOperator(path[-2], path[:-1], frame.name, frame.calls, frame.gpu_ns)
        for path, frame in tree.walk()
        if frame.kind == "kernel" and len(path) > 1
    ]
    return tuple(sorted(found, key=lambda each: -each.total_ns))


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _synchronize() -> None:
    if _has_gpu():
        import torch

        torch.cuda.synchronize()

"""What goes into a call and what comes out: shapes, layout, memory, values, and the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from traceview.bench.correctness import tensors
from traceview.bench.operation import Operation
from traceview.bench.timing import Timing, benchmark


@dataclass(frozen=True)
class TensorFacts:
    """One tensor. Least, greatest and mean are of its finite values; None if it has none.

    `bytes` are those of its elements, `storage_bytes` those of the memory that it keeps alive.
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


@dataclass(frozen=True)
class Description:
    """A call: its tensors, its time, and the GPU memory it took at most beyond its inputs.

    `arguments` are the inputs that are no tensors. `peak_memory_bytes` is None on a CPU.
    """

    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    arguments: tuple[str, ...]
    timing: Timing
    peak_memory_bytes: int | None


def describe(
    operation: Operation | Callable[..., Any], *inputs: Any, trials: int = 10
) -> Description:
    """Call an operation's fastest-to-read version, its reference, or any function, and describe it.

    Raises what the call raises, and InputError for inputs that an Operation does not take.
    """
    if isinstance(operation, Operation):
        operation.check(*inputs)
        run = operation.reference
    else:
        run = operation
    results, peak = _with_peak(run, inputs)
    on_gpu = any(_is_tensor(each) and each.is_cuda for each in inputs)
    timing = benchmark(
        lambda: run(*inputs), 1, trials, device="cuda" if on_gpu else "cpu", budget_s=2.0
    )
    return Description(
        tuple(_facts(f"input {i}", each) for i, each in enumerate(inputs) if _is_tensor(each)),
        tuple(
            _facts(f"output {i}", each)
            for i, each in enumerate(tensors(results))
            if _is_tensor(each)
        ),
        tuple(repr(each)[:80] for each in inputs if not _is_tensor(each)),
        timing,
        peak,
    )


def _with_peak(run: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Any, int | None]:
    if not any(_is_tensor(each) and each.is_cuda for each in inputs):
        return run(*inputs), None
    import torch

    run(*inputs)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    results = run(*inputs)
    torch.cuda.synchronize()
    return results, int(torch.cuda.max_memory_allocated() - before)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage") and hasattr(value, "stride")


def _facts(name: str, tensor: Any) -> TensorFacts:
    values = tensor.detach()
    if values.is_complex():
        values = values.abs()
    if values.is_floating_point() and values.element_size() == 1:
        # Of some of these torch cannot tell which are finite; each is a float32, too.
        values = values.float()
    finite = values[values.isfinite()].double()
    some = bool(finite.numel())
    return TensorFacts(
        name=name,
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=tensor.device.type,
        contiguous=bool(tensor.is_contiguous()),
        bytes=tensor.numel() * tensor.element_size(),
        storage_bytes=tensor.untyped_storage().nbytes(),
        least=float(finite.min()) if some else None,
        greatest=float(finite.max()) if some else None,
        mean=float(finite.mean()) if some else None,
        nan_count=int(values.isnan().sum()),
        inf_count=int(values.isinf().sum()),
    )

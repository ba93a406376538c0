"""Describe a call: shapes, layouts and values of its tensors, its memory and its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from traceview.bench.operation import Operation
from traceview.bench.timing.measurement import Timing, benchmark
from traceview.records import record


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

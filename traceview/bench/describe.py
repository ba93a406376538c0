"""Describe a call: shapes, layouts and values of its tensors, its memory and its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    if isinstance(operation, Operation):
        operation.check(*inputs)
        run = operation.reference
    else:
        run = operation
    named_inputs = [_Named(f"input {i}", each) for i, each in enumerate(inputs)]
    results = run(*inputs)
    outputs = results if isinstance(results, tuple | list) else (results,)
    named_outputs = [_Named(f"output {i}", each) for i, each in enumerate(outputs)]
    gpu = _gpu_of([*named_inputs, *named_outputs])
    facts = [
        [_facts(leaf) for each in side for leaf in each.leaves()]
        for side in (named_inputs, named_outputs)
    ]
    others = [leaf.value for each in named_inputs for leaf in each.leaves() if not leaf.is_plain]
    del results, outputs, named_outputs
    return Description(
        tuple(each for each in facts[0] if each),
        tuple(each for each in facts[1] if each),
        tuple(" ".join(repr(each).split())[:80] for each in others),
        benchmark(lambda: run(*inputs), 1, trials, device=gpu or "cpu", budget_s=2.0),
        _peak_bytes(run, inputs, gpu),
    )


@record
class _Named:
    """An input or output and its name: `input 0`, `input 1[2]`, `output 0['loss']`."""

    name: str
    value: Any

    def leaves(self) -> Iterator[_Named]:
        """The leaves of nested tuples, lists and mappings."""
        value = self.value
        if isinstance(value, Mapping):
            pairs = list(value.items())
        elif isinstance(value, tuple | list):
            pairs = list(enumerate(value))
        else:
            yield self
            return
        for key, each in pairs:
            yield from _Named(f"{self.name}[{key!r:.40}]", each).leaves()

    @property
    def is_plain(self) -> bool:
        """Whether it is a tensor with strides and values: not sparse, nested, quantized or meta."""
        tensor = self.value
        strided = str(getattr(tensor, "layout", None)) == "torch.strided"
        return strided and not (tensor.is_nested or tensor.is_quantized or tensor.is_meta)


def _gpu_of(named: Sequence[_Named]) -> str | None:
    """The GPU of the first tensor that is on one, such as cuda:0."""
    for each in named:
        for leaf in each.leaves():
            if getattr(leaf.value, "is_cuda", False):
                return str(leaf.value.device)
    return None


def _peak_bytes(run: Callable[..., Any], inputs: tuple[Any, ...], gpu: str | None) -> int | None:
    if gpu is None:
        return None
    import torch

    torch.cuda.synchronize(gpu)
    before = torch.cuda.memory_allocated(gpu)
    torch.cuda.reset_peak_memory_stats(gpu)
    run(*inputs)
    torch.cuda.synchronize(gpu)
    return int(torch.cuda.max_memory_allocated(gpu) - before)


def _facts(named: _Named) -> TensorFacts | None:
    """Facts of a tensor; None for anything else and for a tensor without values."""
    if not named.is_plain:
        return None
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
    return TensorFacts(
        name=named.name,
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=tensor.device.type,
        contiguous=bool(tensor.is_contiguous()),
        bytes=tensor.numel() * tensor.element_size(),
        storage_bytes=tensor.untyped_storage().nbytes(),
        **_range(values, finite, count),
        nan_count=nan_count,
        inf_count=tensor.numel() - count - nan_count,
    )


def _range(values: Any, finite: Any, count: int) -> dict[str, float | None]:
    """Least, greatest and mean of the `count` finite values; copies nothing if all are finite."""
    if not count:
        return dict.fromkeys(("least", "greatest", "mean"))
    import torch

    values = values if count == values.numel() else values[finite]
    if values.dtype in (torch.uint16, torch.uint32, torch.uint64):
        # torch can do little more with these than convert them.
        values = values.double()
    least, greatest = (float(each) for each in torch.aminmax(values))
    mean = float(values.sum(dtype=torch.float64)) / count
    return {"least": least, "greatest": greatest, "mean": mean}

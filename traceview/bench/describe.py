"""What goes into a call and what comes out: shapes, layout, memory, values, and the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from traceview.bench.operation import Operation
from traceview.bench.timing.measurement import Timing, benchmark


@dataclass(frozen=True)
class TensorFacts:
    """One tensor. Least, greatest and mean are of its finite values; None if it has none.

    Of complex numbers they are those of the magnitudes.
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

    `arguments` are the inputs that are no tensors, or sparse or of another kind that has no
    strides. `peak_memory_bytes` is None on a CPU.
    """

    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    arguments: tuple[str, ...]
    timing: Timing
    peak_memory_bytes: int | None


def describe(
    operation: Operation | Callable[..., Any], *inputs: Any, trials: int = 10
) -> Description:
    """Call an operation's reference, which is plainest, or any function, and describe the call.

    Tensors are found in tuples, lists and mappings, too. Where one of those that go in or come out
    is on a GPU, that GPU is timed. Raises what the call raises, and InputError for inputs that an
    Operation does not take.
    """
    if isinstance(operation, Operation):
        operation.check(*inputs)
        run = operation.reference
    else:
        run = operation
    given = [_Named(f"input {i}", each) for i, each in enumerate(inputs)]
    results = run(*inputs)
    outputs = results if isinstance(results, tuple | list) else (results,)
    came = [_Named(f"output {i}", each) for i, each in enumerate(outputs)]
    gpu = _gpu_of([*given, *came])
    facts = [[_facts(leaf) for each in side for leaf in each.leaves()] for side in (given, came)]
    others = [leaf.value for each in given for leaf in each.leaves() if not leaf.is_plain]
    del results, outputs, came
    return Description(
        tuple(each for each in facts[0] if each),
        tuple(each for each in facts[1] if each),
        tuple(" ".join(repr(each).split())[:80] for each in others),
        benchmark(lambda: run(*inputs), 1, trials, device=gpu or "cpu", budget_s=2.0),
        _peak_bytes(run, inputs, gpu),
    )


@dataclass(frozen=True)
class _Named:
    """What goes in or comes out, and where it is: `input 0`, `input 1[2]`, `output 0['loss']`."""

    name: str
    value: Any

    def leaves(self) -> Iterator[_Named]:
        """What is in nested tuples, lists and mappings."""
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
        own = self.value
        strided = str(getattr(own, "layout", None)) == "torch.strided"
        return strided and not (own.is_nested or own.is_quantized or own.is_meta)


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
    """None of what is no tensor, or has no values."""
    if not named.is_plain:
        return None
    tensor = named.value
    values = tensor.detach()
    if values.is_complex():
        values = values.abs()
    if values.is_floating_point() and values.element_size() == 1:
        # Of some of these torch cannot tell which are finite; each is a float32, too.
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
    """Of the finite values, whose number is given, without a copy where that is all."""
    if not count:
        return dict.fromkeys(("least", "greatest", "mean"))
    import torch

    own = values if count == values.numel() else values[finite]
    if own.dtype in (torch.uint16, torch.uint32, torch.uint64):
        # Of these torch knows little more than how to convert them.
        own = own.double()
    least, greatest = (float(each) for each in torch.aminmax(own))
    mean = float(own.sum(dtype=torch.float64)) / count
    return {"least": least, "greatest": greatest, "mean": mean}

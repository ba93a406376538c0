"""One GPU operation as data: its inputs, a reference, and the ways to compute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter, signature
from typing import Any, Literal

from traceview.errors import InputError

Needs = Literal["cpu", "triton", "cuda"]
_FIXED = 3
"""Size, data type and device: what every `inputs` takes."""


def _is_whole(parameter: Parameter) -> bool:
    """By its annotation, or by what it is if nobody says; True and False are no numbers."""
    if parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
        return False
    if parameter.annotation is Parameter.empty:
        return type(parameter.default) is int
    # A text where annotations are put off, a type or a union of types elsewhere.
    said = str(getattr(parameter.annotation, "__name__", parameter.annotation))
    return said in ("int", "int | None", "Optional[int]")


@dataclass(frozen=True)
class Version:
    """One way to compute an operation: `run(*inputs)` gives a tensor, or a tuple of them.

    `needs` says where it runs: `cpu` on any device, `triton` on a GPU or in Triton's interpreter,
    `cuda` on a GPU alone. `note` tells in one line what it does unlike the version before it.
    `kernels` are the Triton functions behind it, whose PTX shows how wide it loads. `supports`
    is asked with the inputs; None means all of them. `cuda_source` is the CUDA C++ of a version
    written in that, for the same purpose as `kernels`.
    """

    name: str
    run: Callable[..., Any]
    needs: Needs = "cpu"
    note: str = ""
    kernels: tuple[Any, ...] = ()
    supports: Callable[..., bool] | None = None
    cuda_source: str | None = None


@dataclass(frozen=True)
class Operation:
    """An operation with all that it takes to check and to time it.

    `inputs(size, dtype, device)` makes them, the same for the same arguments. `reference(*inputs)`
    is plain and obviously right; called with float64 inputs it gives the values that errors are
    measured against. `bytes_moved(*inputs)` is the least traffic with device memory in bytes,
    `flop(*inputs)` the arithmetic, both for one call. `check(*inputs)` raises InputError for
    shapes, types and layouts that the versions cannot take. `sizes` are for a GPU, `small_sizes`,
    odd ones among them, for a CPU and the interpreter. `tolerances` gives for each dtype the
    largest error allowed, as a share of the reference's largest magnitude. `tensor_cores` says that
    the arithmetic is that of tensor cores, by whose peak it is then judged.

    Whole numbers that `inputs` takes beyond these three, such as `batch: int | None = None`, are
    parameters that `--sweep` can vary.
    """

    name: str
    title: str
    inputs: Callable[[int, Any, str], tuple[Any, ...]]
    reference: Callable[..., Any]
    versions: tuple[Version, ...]
    bytes_moved: Callable[..., int]
    flop: Callable[..., int]
    sizes: tuple[int, ...]
    small_sizes: tuple[int, ...]
    tolerances: Mapping[str, float]
    check: Callable[..., None]
    size_means: str = "elements"
    facts: Mapping[str, str] = field(default_factory=dict)
    tensor_cores: bool = False

    def __post_init__(self) -> None:
        """Raise InputError for what cannot be measured: no version, no type, a name twice."""
        if not self.versions or not self.tolerances:
            lacks = "data types in tolerances" if self.versions else "versions"
            raise InputError(f"{self.name} has no {lacks}", "give one or more")
        names = [version.name for version in self.versions]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{self.name} has two versions {twice[:60]!r}", "rename one")

    @property
    def unit(self) -> str:
        """What one more of a size is, to stand after a number: element, step."""
        many = self.size_means
        return "unit of size" if " " in many else many.removesuffix("s")

    @property
    def parameters(self) -> tuple[str, ...]:
        """What can be varied beside the size and the data type, by name."""
        more = list(signature(self.inputs).parameters.values())[_FIXED:]
        return tuple(each.name for each in more if _is_whole(each))

    def at(self, **values: int) -> Operation:
        """The same with these values of its parameters. Raises InputError for one it has not."""
        for name in values:
            if name not in self.parameters:
                has = ", ".join(("size", *self.parameters))
                what = f"{self.name} has no parameter {name[:60]!r} to sweep over"
                raise InputError(what, f"it has: {has}")
        return replace(self, inputs=partial(self.inputs, **values))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Names of the data types it takes, such as float32."""
        return tuple(self.tolerances)

    def version(self, name: str) -> Version:
        """The version of that name. Raises InputError if there is none."""
        for version in self.versions:
            if version.name == name:
                return version
        known = ", ".join(version.name for version in self.versions)
        raise InputError(f"{self.name} has no version {name[:60]!r}", f"it has: {known}")

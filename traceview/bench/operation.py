"""A GPU operation to benchmark: its inputs, its reference and its versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter, signature
from typing import Any, Literal

from traceview.errors import InputError
from traceview.records import record

Needs = Literal["cpu", "triton", "cuda"]
_FIXED = 3
"""The parameters that every `inputs` takes: size, data type and device."""


def _is_whole(parameter: Parameter) -> bool:
    """Whether a parameter is an int, by its annotation or else its default; a bool is not."""
    if parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
        return False
    if parameter.annotation is Parameter.empty:
        return type(parameter.default) is int
    # A text if annotations are postponed, else a type or a union of types.
    annotation = str(getattr(parameter.annotation, "__name__", parameter.annotation))
    return annotation in ("int", "int | None", "Optional[int]")


@record
class Version:
    """One implementation of an operation: `run(*inputs)` returns a tensor, or a tuple of them.

    `needs` says where it runs: `cpu` on any device, `triton` on a GPU or in Triton's interpreter,
    `cuda` on a GPU only. `note` says in one line what distinguishes it from the version before.
    `kernels` are its Triton functions, from whose PTX the load width is read. `supports(*inputs)`
    says whether it takes the inputs; None means it takes all. `cuda_source` is its CUDA C++ source,
    if it is written in that, for the same purpose as `kernels`.
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
    """An operation, with all that is needed to check and time it.

    `inputs(size, dtype, device)` makes the inputs; the same arguments give the same inputs.
    `reference(*inputs)` is plain and obviously right; called with float64 inputs it returns the
    values that errors are measured against. `bytes_moved(*inputs)` is the minimum traffic to and
    from device memory in bytes and `flop(*inputs)` the arithmetic, both per call. `check(*inputs)`
    raises InputError for shapes, data types and layouts that no version takes. `sizes` are for a
    GPU; `small_sizes`, some of them odd, for a CPU and the interpreter. `tolerances` maps each
    data type to the largest error allowed, relative to the reference's largest magnitude.
    `tensor_cores` says to judge it by the peak of the tensor cores.

    Further integer parameters of `inputs`, such as `batch: int | None = None`, can be varied by
    `--sweep`.
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
        """Raise InputError without a version or data type, or for two versions of one name."""
        if not self.versions or not self.tolerances:
            missing = "data types in tolerances" if self.versions else "versions"
            raise InputError(f"{self.name} has no {missing}", "add at least one")
        names = [version.name for version in self.versions]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            what = f"{self.name} has two versions named {repeated[:60]!r}"
            raise InputError(what, "rename one")

    @property
    def unit(self) -> str:
        """The singular of `size_means`, such as element or step."""
        many = self.size_means
        return "unit of size" if " " in many else many.removesuffix("s")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that can be varied besides size and data type."""
        more = list(signature(self.inputs).parameters.values())[_FIXED:]
        return tuple(parameter.name for parameter in more if _is_whole(parameter))

    def at(self, **values: int) -> Operation:
        """The operation at these parameter values. Raises InputError for an unknown parameter."""
        for name in values:
            if name not in self.parameters:
                known = ", ".join(("size", *self.parameters))
                what = f"{self.name} has no parameter {name[:60]!r} to sweep over"
                raise InputError(what, f"it has: {known}")
        return replace(self, inputs=partial(self.inputs, **values))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Names of the data types that it takes, such as float32."""
        return tuple(self.tolerances)

    def version(self, name: str) -> Version:
        """The version of that name. Raises InputError if there is none."""
        for version in self.versions:
            if version.name == name:
                return version
        known = ", ".join(version.name for version in self.versions)
        raise InputError(f"{self.name} has no version {name[:60]!r}", f"it has: {known}")

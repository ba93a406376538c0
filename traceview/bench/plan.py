"""What to measure of an operation: what was asked for, and for the rest its own choice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

from traceview.bench.machine import Machine
from traceview.bench.operation import Operation
from traceview.bench.timing.measurement import check_counts
from traceview.bench.timing.sweep import SIZE, Axis
from traceview.errors import InputError
from traceview.inspect.targets.target import check_arch


@dataclass(frozen=True)
class Asked:
    """What to measure, and how; empty means the operation's own choice.

    `sweep` is a text such as `batch=1,2,4,8`: at each value of the size, or of a parameter of the
    operation, with a line fitted through the times. A single size, type or version may stand for
    a list of one.
    """

    sizes: Sequence[int] = ()
    dtypes: Sequence[str] = ()
    versions: Sequence[str] = ()
    warmup: int = 3
    trials: int = 30
    cold: bool = True
    widths: bool = True
    arch: str | None = None
    peaks: str | Iterable[str] | Mapping[str, float] = ()
    sweep: str | None = None

    def __post_init__(self) -> None:
        # A text is a sequence, too: of letters.
        for name in ("sizes", "dtypes", "versions"):
            value = getattr(self, name)
            if isinstance(value, (str, Integral)):
                object.__setattr__(self, name, (value,))


def planned(
    operation: Operation, asked: Asked, machine: Machine
) -> tuple[Asked, str, tuple[int | None, ...]]:
    """What to measure, what is swept, and its values: None where that is the size.

    Raises InputError for a version, type, size or parameter that the operation does not have.
    """
    axis = None if asked.sweep is None else Axis.of(asked.sweep)
    own = operation.sizes if machine.gpu else operation.small_sizes
    if axis and axis.over == SIZE:
        if asked.sizes:
            raise InputError("sizes are given twice", "pass either --size or --sweep size=…")
        own = axis.values
    sizes = asked.sizes or own
    plan = _complete(operation, replace(asked, sizes=sizes))
    if axis is None or axis.over == SIZE:
        return plan, SIZE, (None,)
    operation.at(**{axis.over: axis.values[0]})
    if len(asked.sizes) > 1:
        what = f"{len(asked.sizes)} sizes and a sweep over {axis.over}"
        raise InputError(what, "sweep at one --size")
    one = asked.sizes or (sorted(sizes)[len(sizes) // 2],)
    return replace(plan, sizes=one), axis.over, axis.values


def _complete(operation: Operation, asked: Asked) -> Asked:
    check_arch(asked.arch)
    check_counts(asked.warmup, asked.trials)
    for dtype in asked.dtypes:
        if dtype not in operation.tolerances:
            known = ", ".join(operation.dtypes)
            raise InputError(f"{operation.name} does not take {dtype[:40]!r}", f"it takes {known}")
    if not asked.sizes:
        raise InputError(f"{operation.name} has no sizes of its own", "ask for one: --size 4096")
    for size in asked.sizes:
        if not isinstance(size, Integral) or size < 1:
            raise InputError(f"a size of {size!r}"[:60], "give positive whole numbers")
    names = [operation.version(name).name for name in asked.versions]
    return replace(
        asked,
        dtypes=asked.dtypes or operation.dtypes[:1],
        versions=names or [version.name for version in operation.versions],
    )

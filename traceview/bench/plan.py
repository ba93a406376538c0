"""What to measure: the user's request, completed by the operation's defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral

from traceview.bench.machine import Machine
from traceview.bench.operation import Operation
from traceview.bench.timing.growth import SIZE, Axis
from traceview.bench.timing.measurement import check_counts
from traceview.errors import InputError
from traceview.inspect.targets.target import check_arch
from traceview.records import record


@record
class BenchRequest:
    """What to measure, and how. Empty sequences mean the operation's defaults.

    `sweep` is a text such as `batch=1,2,4,8`: measure at each value of the size, or of a parameter
    of the operation, and fit a line through the times. A single size, data type or version may
    stand for a list of one. `cold` empties the L2 cache before every call. `widths` compiles the
    kernels for `arch` to read their load widths. `peaks` are as `--peak` takes them.
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


def resolve_request(
    operation: Operation, request: BenchRequest, machine: Machine
) -> tuple[BenchRequest, str, tuple[int | None, ...]]:
    """The request completed by defaults, the name of the swept parameter, and its values.

    The values are (None,) if the size is swept or nothing. Raises InputError for a version, data
    type, size or parameter that the operation does not have.
    """
    axis = None if request.sweep is None else Axis.of(request.sweep)
    sizes = request.sizes or (operation.sizes if machine.gpu else operation.small_sizes)
    if axis and axis.over == SIZE:
        if request.sizes:
            raise InputError("sizes are given twice", "pass either --size or --sweep size=…")
        sizes = axis.values
    check_arch(request.arch)
    check_counts(request.warmup, request.trials)
    for dtype in request.dtypes:
        if dtype not in operation.tolerances:
            remedy = f"it takes {', '.join(operation.dtypes)}"
            raise InputError(f"{operation.name} does not take {dtype[:40]!r}", remedy)
    if not sizes:
        raise InputError(f"{operation.name} has no default sizes", "pass one: --size 4096")
    for size in sizes:
        if not isinstance(size, Integral) or size < 1:
            raise InputError(f"size {size!r}"[:60], "pass positive whole numbers")
    names = [operation.version(name).name for name in request.versions]
    over: str = SIZE
    values: tuple[int | None, ...] = (None,)
    if axis and axis.over != SIZE:
        operation.at(**{axis.over: axis.values[0]})
        if len(request.sizes) > 1:
            what = f"{len(request.sizes)} sizes and a sweep over {axis.over}"
            raise InputError(what, "sweep at one --size")
        sizes = request.sizes or (sorted(sizes)[len(sizes) // 2],)
        over, values = axis.over, axis.values
    resolved = replace(
        request,
        sizes=sizes,
        dtypes=request.dtypes or operation.dtypes[:1],
        versions=names or [version.name for version in operation.versions],
    )
    return resolved, over, values

"""Time the versions of an operation in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceview.bench.case import Case
from traceview.bench.loading import broke_cuda, error_line
from traceview.bench.operation import Operation
from traceview.bench.plan import BenchRequest
from traceview.bench.timing.clock import Run
from traceview.bench.timing.cuda_clock import Declared
from traceview.bench.timing.measurement import Timing, benchmark_in_turns
from traceview.facts.work.declarations import declaration


def version_times(
    operation: Operation,
    names: Sequence[str],
    case: Case,
    request: BenchRequest,
    flop_kind: str,
) -> Mapping[str, Timing | Exception | None]:
    """The timing of each version, or the exception that it raised.

    None for versions that could not run because an earlier one left CUDA unusable.
    """
    if not names:
        return {}
    try:
        times = benchmark_in_turns(
            [_run(operation, name, case) for name in names],
            request.warmup,
            request.trials,
            cold=request.cold,
            declared=[_declared(f"{operation.name} {name}", case, flop_kind) for name in names],
            is_fatal=lambda error: broke_cuda(error_line(error)),
        )
    except Exception as error:
        # The clock's own buffer may not fit beside the inputs.
        return dict.fromkeys(names, error)
    return dict(zip(names, times, strict=True))


def _run(operation: Operation, name: str, case: Case) -> Run:
    run = operation.version(name).run
    return lambda: run(*case.inputs)


def _declared(name: str, case: Case, flop_kind: str) -> Declared:
    def text(calls: int) -> str:
        moved, flop = case.bytes_moved * calls, case.flop * calls
        return declaration(name, bytes=moved, flop=flop, kind=flop_kind)

    return text

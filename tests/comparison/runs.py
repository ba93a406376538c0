"""Figures of runs, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceview.traces.comparison.figures import RunFigures, StepPart

MS = 1_000_000


def run(
    step_ms: float = 10.0,
    *,
    steps: int = 4,
    parts: Sequence[StepPart] = (),
    counts: Mapping[str, int] | None = None,
    figures: Mapping[str, float] | None = None,
    step_ns: Sequence[int] = (),
    name: str = "run.sqlite",
) -> RunFigures:
    """A run of equal steps, whose rest beside `parts` is a kernel named `rest`."""
    lengths = tuple(step_ns) or (round(step_ms * MS),) * steps
    window = sum(lengths)
    rest = window - sum(part.time_ns for part in parts)
    filled = StepPart("kernel", "gemm", "rest", "train.py:10", rest, rest, len(lengths))
    return RunFigures(
        name=name,
        digest=f"{name}:{window}",
        recorder="nsys",
        environment={"gpu": "NVIDIA H200"},
        devices=1,
        has_steps=True,
        step_ns=lengths,
        window_ns=window,
        parts=(*parts, filled),
        counts=counts or {},
        figures=figures or {},
    )

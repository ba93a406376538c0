"""A comparison of runs as JSON, version 1.

Times per step are means and may have a fraction of a nanosecond. The `difference_ns` of the parts
sum to the `difference_ns` of the step. Absent values are null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from traceview.comparison import wording
from traceview.comparison.changes import main_changes
from traceview.comparison.comparison import CountDifference, PartDifference, RunComparison
from traceview.comparison.figures import RunFigures, StepPart
from traceview.render.base.json_text import SCHEMA_VERSION, pieces


def render_json(comparison: RunComparison, version: str) -> str:
    """The comparison as one JSON document in ASCII."""
    return "".join(json_pieces(comparison, version))


def json_pieces(comparison: RunComparison, version: str) -> Iterator[str]:
    """The JSON document in pieces."""
    yield from pieces(_document(comparison, version))
    yield "\n"


def _document(comparison: RunComparison, version: str) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "headline": wording.headline(comparison),
        "step": _step(comparison),
        "certainty": {
            **asdict(comparison.certainty),
            "is_certain": comparison.certainty.is_certain,
        },
        "changes": [change.text for change in main_changes(comparison)],
        "parts": [_part(part, comparison) for part in _sorted(comparison)],
        "counts": [_count(count) for count in comparison.counts],
        "environment": [asdict(each) for each in comparison.environment],
        "before": [_run(run) for run in comparison.before],
        "after": [_run(run) for run in comparison.after],
        "notes": list(wording.notes(comparison)),
    }


def _step(comparison: RunComparison) -> dict[str, Any]:
    return {
        "has_steps": wording.has_steps(comparison),
        "before_ns": float(comparison.before_ns),
        "after_ns": float(comparison.after_ns),
        "difference_ns": float(comparison.delta_ns),
        "difference_pct": _pct(comparison.delta_ns, comparison.before_ns),
    }


def _pct(part: Fraction, whole: Fraction) -> float | None:
    return float(part / whole) * 100 if whole else None


def _sorted(comparison: RunComparison) -> list[PartDifference]:
    return sorted(comparison.parts, key=lambda part: -abs(part.delta_ns))


def _part(part: PartDifference, comparison: RunComparison) -> dict[str, Any]:
    per = wording.PER_STEP if wording.has_steps(comparison) else ""
    return {
        "kind": part.kind,
        "group": part.group,
        "name": part.name,
        "place": part.place,
        "change": part.change,
        "sentence": wording.sentence(part, per),
        "before_ns": float(part.before_ns),
        "after_ns": float(part.after_ns),
        "difference_ns": float(part.delta_ns),
        "share_pct": _pct(part.delta_ns, comparison.delta_ns),
        "calls_before": float(part.calls_before),
        "calls_after": float(part.calls_after),
        "from_calls_ns": float(part.calls_ns),
        "from_time_per_call_ns": float(part.each_ns),
        "before": _side(part.before),
        "after": _side(part.after),
    }


def _side(part: StepPart | None) -> dict[str, Any] | None:
    if part is None:
        return None
    return {"name": part.name, "place": part.place, "shape": part.shape and asdict(part.shape)}


def _count(count: CountDifference) -> dict[str, Any]:
    return {
        "name": count.name,
        "before": float(count.before),
        "after": float(count.after),
        "varies": count.varies,
    }


def _run(run: RunFigures) -> dict[str, Any]:
    return {
        "name": run.name,
        "recorder": run.recorder,
        "devices": run.devices,
        "has_steps": run.has_steps,
        "steps": run.steps,
        "window_ns": run.window_ns,
        "environment": dict(run.environment),
        "figures": dict(run.figures),
        "warnings": list(run.warnings),
    }

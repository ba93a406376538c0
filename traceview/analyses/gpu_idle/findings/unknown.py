"""The finding where lost work leaves the idle time of a GPU unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from traceview.analyses.wording import flush
from traceview.facts.idle.gaps import Gaps, device_work, gaps
from traceview.facts.idle.unknown_idle import unknown_idle
from traceview.facts.operations.hosts import gpu_cells
from traceview.findings import Evidence, Finding
from traceview.rules.gpus import gpu_name, gpu_subject
from traceview.tables import Mask
from traceview.trace import Trace
from traceview.units import Value
from traceview.vocabulary.causes import CAUSE_NAMES, LOST_WORK

_WHERE = ", and may have run in {gaps_ns} that look idle"


def of_unknown(trace: Trace) -> Iterator[Finding]:
    """One finding per GPU whose gaps may be full of work that the recording lost."""
    every = gaps(trace)
    for device, unknown in unknown_idle(trace).items():
        gpu = "the GPU" if len(device_work(trace)) == 1 else gpu_name(trace, device)
        own = (every.device == device) & (every.cause == LOST_WORK)
        values: dict[str, Value] = {
            "lost": unknown.lost,
            "launches": unknown.launches,
            "gaps_ns": unknown.gaps_ns,
        }
        yield Finding(
            "info",
            f"How long {gpu} sat idle is unknown: the work of {{lost}} of {{launches:launch|"
            f"launches}} was not recorded{_WHERE if unknown.gaps_ns else ''}.",
            flush(trace),
            0,
            gpu_subject(trace, device),
            _evidence(values, gpu_cells(trace, device), every, own),
        )


def _evidence(
    values: Mapping[str, Value], gpu: Mapping[str, Value], every: Gaps, own: Mask
) -> Evidence:
    """Evidence by the longest of the gaps, or by the GPU if it has no gap."""
    if not own.any():
        return Evidence(values, "devices", gpu)
    longest = int(np.argmax(np.where(own, every.idle_ns, -1)))
    row = {**gpu, "cause": CAUSE_NAMES[LOST_WORK]}
    return Evidence(values, "causes", row, int(every.start_ns[longest]), int(every.end_ns[longest]))

"""What one SM of each GPU of a trace holds, and how many SMs the GPU has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from traceview.errors import InputError
from traceview.facts.work.peaks import Peaks, peaks
from traceview.hardware import SmLimits, limits_of
from traceview.hardware.limits import WARP_THREADS
from traceview.tables import Cell
from traceview.trace import Trace, fact

_OF_ROW = {
    "blocks_per_sm": "max_blocks_per_sm",
    "registers_per_sm": "max_registers_per_sm",
    "shared_bytes_per_sm": "max_shared_memory_per_sm_bytes",
    "opt_in_shared_bytes_per_block": "max_shared_memory_per_block_bytes",
}
"""Field of SmLimits, and the column in devices that comes before it."""


@dataclass(frozen=True)
class Sms:
    """The SMs of a GPU: how many, and what each holds."""

    count: int
    limits: SmLimits


@dataclass(frozen=True)
class Unknown:
    """Why nothing is known of a GPU's SMs, and the `--peak` options that would tell."""

    reason: str
    options: tuple[str, ...]


@fact
def sms(trace: Trace) -> tuple[Sms | Unknown, ...]:
    """For each row of devices, its SMs or why they are not known.

    The trace's own GPU row comes first; it does not say how registers and shared memory are
    handed out: that is known by compute capability.
    """
    rows = zip(trace.devices.rows(), peaks(trace), strict=True)
    return tuple(_sms(row, known) for row, known in rows)


def _sms(row: Mapping[str, Cell], known: Peaks) -> Sms | Unknown:
    gpu = f"GPU {row['device_id']}"
    if "capability" not in known or "sms" not in known:
        lacking = tuple(name for name in ("capability", "sms") if name not in known)
        words = {"capability": "compute capability", "sms": "number of SMs"}
        said = " and ".join(words[name] for name in lacking)
        return Unknown(f"the trace does not tell the {said} of {gpu}", lacking)
    try:
        limits = limits_of(f"{known['capability'].value:.1f}")
    except InputError as error:
        return Unknown(f"{error.what} ({gpu})", ("capability",))
    return Sms(int(known["sms"].value), replace(limits, **_told(row)))


def _told(row: Mapping[str, Cell]) -> dict[str, Any]:
    told: dict[str, Any] = {
        field: row[column] for field, column in _OF_ROW.items() if row[column] is not None
    }
    warps = row["max_warps_per_sm"]
    return {**told, "threads_per_sm": warps * WARP_THREADS} if isinstance(warps, int) else told

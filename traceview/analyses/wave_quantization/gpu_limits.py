"""The number of SMs of each GPU of a trace, and the limits of one SM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from traceview.errors import InputError
from traceview.facts.work.peaks import Peaks, peaks
from traceview.hardware import SmLimits, limits_of
from traceview.records import record
from traceview.tables import Cell
from traceview.trace import Trace, fact
from traceview.vocabulary.amounts import WARP_THREADS

_OF_ROW = {
    "blocks_per_sm": "max_blocks_per_sm",
    "registers_per_sm": "max_registers_per_sm",
    "shared_bytes_per_sm": "max_shared_memory_per_sm_bytes",
    "opt_in_shared_bytes_per_block": "max_shared_memory_per_block_bytes",
}
"""Field of SmLimits, and the column in devices that takes precedence."""


@record
class GpuLimits:
    """The number of SMs of a GPU, and the limits of each."""

    sm_count: int
    limits: SmLimits


@record
class UnknownLimits:
    """Why the SMs of a GPU are unknown, and the `--peak` options that give them."""

    reason: str
    options: tuple[str, ...]


@fact
def gpu_limits(trace: Trace) -> tuple[GpuLimits | UnknownLimits, ...]:
    """The limits of each row of devices.

    The trace's own GPU row takes precedence. The units in which registers and shared memory are
    allocated are not in it: they follow from the compute capability.
    """
    rows = zip(trace.devices.rows(), peaks(trace), strict=True)
    return tuple(_limits(row, known) for row, known in rows)


def _limits(row: Mapping[str, Cell], known: Peaks) -> GpuLimits | UnknownLimits:
    gpu = f"GPU {row['device_id']}"
    if "capability" not in known or "sms" not in known:
        lacking = tuple(name for name in ("capability", "sms") if name not in known)
        words = {"capability": "compute capability", "sms": "number of SMs"}
        missing = " and ".join(words[name] for name in lacking)
        return UnknownLimits(f"the trace does not have the {missing} of {gpu}", lacking)
    try:
        limits = limits_of(f"{known['capability'].value:.1f}")
    except InputError as error:
        return UnknownLimits(f"{error.what} ({gpu})", ("capability",))
    return GpuLimits(int(known["sms"].value), replace(limits, **_recorded(row)))


def _recorded(row: Mapping[str, Cell]) -> dict[str, Any]:
    recorded: dict[str, Any] = {
        field: row[column] for field, column in _OF_ROW.items() if row[column] is not None
    }
    warps = row["max_warps_per_sm"]
    if isinstance(warps, int):
        recorded["threads_per_sm"] = warps * WARP_THREADS
    return recorded

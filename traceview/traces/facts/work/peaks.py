"""Peak rates and sizes of each GPU of a trace with their sources; the form of an estimate.

By precedence: what the user gave, the trace's own GPU row, the data sheet of the product, and what
follows from SMs, lanes and clock. A figure that none of these has is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from traceview.base import units
from traceview.base.hardware import lanes_of, rates_of, rtx_factors
from traceview.base.hardware.rates import FLOP_KINDS
from traceview.base.records import record
from traceview.base.tables import Cell, Integers, constant
from traceview.traces.trace import Trace, fact

# Rates of columns: bytes per second.

_MOST_RATE = float(1 << 62)


def bytes_per_s(size: Integers, time_ns: Integers) -> Integers:
    """Bytes per second, 0 where no time passed."""
    rate = np.where(time_ns > 0, np.maximum(size, 0) / np.maximum(time_ns, 1) * 1e9, 0)
    # Damaged sizes and times make rates that no integer holds.
    return np.rint(np.minimum(rate, _MOST_RATE)).astype(np.int64)


GIVEN, OF_THE_TRACE = "--peak", "the trace's GPU row"
_OF_ROW = {
    "bandwidth": "memory_bytes_per_s",
    "l2": "l2_cache_bytes",
    "clock": "clock_hz",
    "sms": "sm_count",
}
"""Figure by the name of hardware.FIGURES, and its column in devices."""


@record
class Peak:
    """A figure in the unit given in hardware.FIGURES, and its source."""

    value: float
    source: str


Peaks = Mapping[str, Peak]


@fact
def peaks(trace: Trace) -> tuple[Peaks, ...]:
    """The figures of each row of devices, by the names of hardware.FIGURES.

    Figures from `--peak` hold for all GPUs of the trace.
    """
    return tuple(_peaks(row, trace.peaks) for row in trace.devices.rows())


def _peaks(row: Mapping[str, Cell], given: Mapping[str, float]) -> Peaks:
    sms, name = row["sm_count"], str(row["name"] or "")
    figures: dict[str, Peak] = {}
    if rates := rates_of(name, sms if isinstance(sms, int) else None):
        sheet: dict[str, float | None] = {
            "bandwidth": rates.memory_bytes_per_s,
            "link": rates.link_bytes_per_s,
            "l2": rates.l2_cache_bytes,
            **rates.flop_per_s,
        }
        figures |= {key: Peak(float(value), rates.source) for key, value in sheet.items() if value}
    recorded = {key: row[column] for key, column in _OF_ROW.items()}
    figures |= {
        key: Peak(float(value), OF_THE_TRACE)
        for key, value in recorded.items()
        if isinstance(value, int)
    }
    with suppress(ValueError):
        if capability := float(str(row["compute_capability"])):
            figures["capability"] = Peak(capability, OF_THE_TRACE)
    figures |= {key: Peak(value, GIVEN) for key, value in given.items()}
    figures = {**_computed(figures), **figures}
    # Rates of the tensor cores of a GeForce card without a data sheet here.
    factors, fp32 = rtx_factors(name, str(row["compute_capability"])), figures.get("fp32")
    of_geforce = {
        kind: Peak(factor * fp32.value, f"{factor} × the fp32 rate, as RTX cards of its kind have")
        for kind, factor in factors.items()
        if fp32
    }
    return {**of_geforce, **figures}


def _computed(known: Peaks) -> Peaks:
    """Rates of the CUDA cores: two FLOP per lane and clock."""
    if "sms" not in known or "clock" not in known:
        return {}
    capability = known["capability"].value if "capability" in known else 0.0
    sms, clock = known["sms"].value, known["clock"].value
    computed = {}
    for kind in ("fp32", "fp64"):
        lanes = lanes_of(f"{capability:.1f}", kind)
        if lanes:
            source = f"{sms:.0f} SMs × {lanes} lanes × 2 × {units.quantity('hz', clock)}"
            computed[kind] = Peak(sms * lanes * 2 * clock, source)
    return computed


Floats = npt.NDArray[np.float64]
KINDS = (*FLOP_KINDS, "fp16-lanes")
"""Kinds of FLOP: those with a peak rate, and half precision on CUDA cores."""


@record
class WorkEstimate:
    """Bytes and FLOP, one entry per kernel launch; NaN where unknown.

    `bytes` are moved between device memory and the GPU. `kind` is an index into KINDS, -1 where
    unknown.
    """

    bytes: Floats
    flop: Floats
    kind: Integers

    @classmethod
    def absent(cls, kernels: int) -> WorkEstimate:
        """Unknown work, in constant memory and read-only, for traces without any source."""
        nan = constant(np.nan, kernels, np.float64)
        return cls(nan, nan, constant(-1, kernels, np.int64))

    @classmethod
    def unknown(cls, kernels: int) -> WorkEstimate:
        """Unknown work, to be filled in."""
        return cls(
            np.full(kernels, np.nan), np.full(kernels, np.nan), np.full(kernels, -1, np.int64)
        )

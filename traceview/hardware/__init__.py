"""Limits and rates of GPUs by compute capability, each with its source."""

from traceview.hardware.limits import KNOWN_CAPABILITIES, SmLimits, limits_of
from traceview.hardware.occupancy import Limiter, Occupancy, occupancy

__all__ = [
    "KNOWN_CAPABILITIES",
    "Limiter",
    "Occupancy",
    "SmLimits",
    "limits_of",
    "occupancy",
]

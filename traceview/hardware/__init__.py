"""Limits and rates of GPUs by compute capability and product, each with its source."""

from traceview.hardware.limits import KNOWN_CAPABILITIES, SmLimits, limits_of
from traceview.hardware.occupancy import Limiter, Occupancy, occupancy
from traceview.hardware.overrides import FIGURES, parse_figures
from traceview.hardware.rates import (
    FLOP_KINDS,
    Part,
    Rates,
    geforce_factors,
    lanes_of,
    part_of,
    rates_of,
)

__all__ = [
    "FIGURES",
    "FLOP_KINDS",
    "KNOWN_CAPABILITIES",
    "Limiter",
    "Occupancy",
    "Part",
    "Rates",
    "SmLimits",
    "geforce_factors",
    "lanes_of",
    "limits_of",
    "occupancy",
    "parse_figures",
    "part_of",
    "rates_of",
]

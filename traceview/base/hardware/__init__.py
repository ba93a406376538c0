"""Limits and rates of GPUs by compute capability and product, each with its source."""

from traceview.base.hardware.occupancy import (
    KNOWN_CAPABILITIES,
    Limiter,
    Occupancy,
    SmLimits,
    limits_of,
    occupancy,
)
from traceview.base.hardware.rates import (
    FIGURES,
    FLOP_KINDS,
    Part,
    Rates,
    lanes_of,
    parse_figures,
    part_of,
    rates_of,
    rtx_factors,
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
    "lanes_of",
    "limits_of",
    "occupancy",
    "parse_figures",
    "part_of",
    "rates_of",
    "rtx_factors",
]

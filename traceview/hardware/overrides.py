"""Figures of a GPU given by the user: `--peak bandwidth=4.8e12`, `--peak sms=132`.

They take precedence over the trace and the data sheets, for a GPU that neither knows or that runs
below its data sheet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from traceview.errors import InputError
from traceview.hardware.limits import KNOWN_CAPABILITIES
from traceview.hardware.rates import FLOP_KINDS

FIGURES: Mapping[str, str] = {
    "bandwidth": "bytes per second of device memory",
    "link": "bytes per second between host and GPU, one way",
    "l2": "bytes of L2 cache",
    "clock": "SM clock in Hz",
    "sms": "SMs of the GPU",
    "capability": "compute capability, such as 9.0",
    **dict.fromkeys(FLOP_KINDS, "FLOP per second, dense"),
}
"""The names that `--peak` takes, and the meaning of their values."""


def parse_figures(figures: str | Iterable[str] | Mapping[str, float]) -> Mapping[str, float]:
    """Figures by name, from one or several texts such as `bandwidth=4.8e12`, or from a mapping.

    Raises InputError for a name not in FIGURES and for a value that is not a positive number, a
    whole number of SMs, or a known compute capability.
    """
    if isinstance(figures, Mapping):
        return {name: _checked(name, value) for name, value in figures.items()}
    texts = (figures,) if isinstance(figures, str) else figures
    parted = (text.partition("=") for text in texts)
    return {name.strip(): _checked(name.strip(), value) for name, _, value in parted}


def _checked(name: str, value: str | float) -> float:
    if name not in FIGURES:
        raise InputError(f"--peak has no figure {name[:40]!r}", f"it has {', '.join(FIGURES)}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        remedy = f"give a positive number: {FIGURES[name]} (--peak {name}=VALUE)"
        raise InputError(f"--peak {name} is {str(value)[:40]!r}", remedy)
    if name == "sms" and not number.is_integer():
        raise InputError(f"--peak sms is {number:g}", "give a whole number")
    if name == "capability" and f"{number:.1f}" not in KNOWN_CAPABILITIES:
        known = ", ".join(KNOWN_CAPABILITIES)
        raise InputError(f"--peak capability is {number:g}", f"known are {known}")
    return number

"""SM counts of products, one per compute capability.

A compute capability has no SM count. Where the GPU of a kernel is not given, one product stands for
its capability, and reports name that product. Sources, by capability. Where a source gives CUDA
cores, the SMs are these ÷ the FP32 cores per SM (CUDA C++ Programming Guide, arithmetic
instructions: 64 for 7.x and 8.0, 128 for the others).

Known by their cores: 7.0 V100, 5,120 · 7.2 Jetson AGX Xavier, 512 · 7.5 TITAN RTX, 4,608 (576
tensor cores, 8 per SM) · 8.0 A100, 6,912 · 8.6 A40, 10,752 · 8.7 Jetson AGX Orin, 2,048 · 8.9
L40S, 18,176 · 9.0 H100 SXM, 16,896 (the PCIe card has 114 SMs); recordings of an H200 in
tests/data have 132, too · 12.0 RTX PRO 6000 Blackwell, 24,064 · 12.1 GB10, 6,144.

As printed by programs that ran there: 10.0 B200 · 10.3 GB300, where the whole chip has 160 and
a B300 in its SXM form 148 · 11.0 Jetson AGX Thor.
"""

from __future__ import annotations

from traceview.hardware.limits import limits_of
from traceview.records import record


@record
class Part:
    """A product and its number of SMs."""

    name: str
    sm_count: int


_STANDS_FOR = {
    "7.0": Part("V100", 80),
    "7.2": Part("Jetson AGX Xavier", 8),
    "7.5": Part("TITAN RTX", 72),
    "8.0": Part("A100", 108),
    "8.6": Part("A40", 84),
    "8.7": Part("Jetson AGX Orin 64GB", 16),
    "8.9": Part("L40S", 142),
    "9.0": Part("H100 SXM and H200", 132),
    "10.0": Part("B200", 148),
    "10.3": Part("GB300", 152),
    "11.0": Part("Jetson AGX Thor", 20),
    "12.0": Part("RTX PRO 6000 Blackwell", 188),
    "12.1": Part("GB10", 48),
}


def part_of(gpu: str) -> Part:
    """The product that stands for a compute capability ("9.0") or an architecture ("sm_90a").

    Raises InputError where the capability is not known.
    """
    return _STANDS_FOR[limits_of(gpu).compute_capability]

"""Peak rates of products: published, computed from SMs and clock, or given by the user.

Every rate is dense: where a data sheet gives sparse tensor rates alone, half of them. A
multiply-add counts two. `fp64` and `fp32` are rates of the CUDA cores; `fp64-tensor`, `tf32`,
`fp16`, `bf16`, `fp8`, `fp4` and `int8` those of the tensor cores, which accumulate in fp32 (int32
for int8). On GeForce, accumulation in fp16 is twice as fast. Rates without a source are left out.

Sources, by product. V100, V100S: Volta V100 data sheet r5 · T4: T4 data sheet · A10, A30, A40,
A100: their data sheets and the A100 whitepaper · L4, L40, L40S: their data sheets · H100: Hopper
whitepaper and data sheet · H100 NVL, H200, H200 NVL, GH200: their data sheets (the SXM module and
Grace Hopper have the H100's SMs and clocks) · B200 and GB200: Blackwell data sheet, one GPU · B300:
HGX B300 platform page, an eighth · RTX 3090, 4090, 5090: the whitepapers of GA102, Ada and RTX
Blackwell. `link_bytes_per_s` is one way between host and GPU: PCIe of that generation with 16
lanes, or NVLink-C2C: the rate of the product, whatever it is plugged into.

Lanes per SM: CUDA C++ Programming Guide, throughput of arithmetic instructions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from traceview.base.errors import InputError, suggestion
from traceview.base.hardware.occupancy import KNOWN_CAPABILITIES, limits_of
from traceview.base.records import record

# SM counts of products, one per compute capability.
#
# A compute capability has no SM count. Where the GPU of a kernel is not given, one product stands
# for its capability, and reports name that product. Sources, by capability. Where a source gives
# CUDA cores, the SMs are these ÷ the FP32 cores per SM (CUDA C++ Programming Guide, arithmetic
# instructions: 64 for 7.x and 8.0, 128 for the others).
#
# Known by their cores: 7.0 V100, 5,120 · 7.2 Jetson AGX Xavier, 512 · 7.5 TITAN RTX, 4,608 (576
# tensor cores, 8 per SM) · 8.0 A100, 6,912 · 8.6 A40, 10,752 · 8.7 Jetson AGX Orin, 2,048 · 8.9
# L40S, 18,176 · 9.0 H100 SXM, 16,896 (the PCIe card has 114 SMs); recordings of an H200 in
# tests/data have 132, too · 12.0 RTX PRO 6000 Blackwell, 24,064 · 12.1 GB10, 6,144.
#
# As printed by programs that ran there: 10.0 B200 · 10.3 GB300, where the whole chip has 160 and
# a B300 in its SXM form 148 · 11.0 Jetson AGX Thor.


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


SHARING_MEMORY = ("5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1")
"""Compute capabilities of GPUs that share the CPU's memory: Jetson from TX1 to Thor, and GB10."""


_UNSAID: tuple[tuple[str, str, int | None], ...] = (
    ("(AGX )?Xavier", "7.2", None),
    ("Tesla P100.*", "6.0", 56),
    ("GeForce GTX 1080", "6.1", 20),
    ("GeForce GTX 1080 Ti", "6.1", 28),
    ("Tesla V100.*", "7.0", 80),
    ("TITAN V", "7.0", 80),
    ("Tesla T4", "7.5", 40),
    ("TITAN RTX", "7.5", 72),
    ("GeForce RTX 2080 Ti", "7.5", 68),
    ("GeForce RTX 2080", "7.5", 46),
    ("GeForce RTX 2070", "7.5", 36),
    ("A100-(SXM4|PCIE)-[48]0GB", "8.0", 108),
    ("GeForce RTX 3080", "8.6", None),
    ("GeForce RTX 3090", "8.6", 82),
)
"""Compute capability and SMs of GPUs that nsys up to 2021 named alone, from NVIDIA's white papers
on Pascal, Volta, Turing and Ampere. None where products of one name differ."""


def unsaid(name: str) -> tuple[str, int | None] | None:
    """Compute capability and number of SMs of a GPU by the name alone; None for an unknown one."""
    product = name.removeprefix("NVIDIA ").strip()
    for pattern, capability, sms in _UNSAID:
        if re.fullmatch(pattern, product):
            return capability, sms
    return None


FLOP_KINDS = ("fp64", "fp64-tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")

_GB, _TERA = 10**9, 10**12
# One way, 16 lanes: 8, 16 and 32 GT/s per lane, 128 of 130 bits of them data; NVIDIA rounds up.
_PCIE_3, _PCIE_4, _PCIE_5 = 16 * _GB, 32 * _GB, 64 * _GB
_C2C = 450 * _GB
_MAKER = re.compile(r"^(?:(?:NVIDIA|Tesla|GeForce)\s+)*")


@record
class Rates:
    """Peak rates of one product; None without a source.

    `flop_per_s` has some of FLOP_KINDS. `sm_count` distinguishes a whole product from a slice.
    """

    product: str
    sm_count: int | None
    flop_per_s: Mapping[str, float]
    memory_bytes_per_s: int | None
    link_bytes_per_s: int | None
    l2_cache_bytes: int | None
    source: str

    @property
    def nvlink_bytes_per_s(self) -> int | None:
        """Rate of NVLink to the other GPUs of a machine, one way; None for cards without it."""
        return _NVLINK.get(self.product)


def rates_of(name: str | None, sm_count: int | None = None) -> Rates | None:
    """The rates of a GPU by the name its driver reports ("NVIDIA A100-SXM4-80GB").

    None for an unknown product, and for another number of SMs: a slice of a GPU (MIG) has the name
    of the product and not its rates.
    """
    product = _MAKER.sub("", name or "").strip()
    for pattern, rates in _KNOWN:
        if pattern.fullmatch(product):
            different = None not in (sm_count, rates.sm_count) and sm_count != rates.sm_count
            return None if different else rates
    return None


def product_named(text: str) -> Rates:
    """The rates of a product by its name ("H200", "A100 80GB"), of several forms the SXM module.

    Raises InputError where none has the name.
    """
    words = [word for word in text.lower().split() if word not in ("nvidia", "tesla", "geforce")]
    known = [rates for _, rates in _KNOWN]
    exact = [rates for rates in known if rates.product.lower().split() == words]
    begins = [rates for rates in known if words and rates.product.lower().split()[0] == words[0]]
    fits = exact or [r for r in begins if {*words} <= {*r.product.lower().split()}]
    if not fits:
        names = [rates.product for rates in known]
        raise InputError(f"no rates are known of a GPU {text[:40]!r}", suggestion(text, names))
    return max(fits, key=lambda r: ("SXM" in r.product, r.memory_bytes_per_s or 0))


def lanes_of(capability: str, kind: str = "fp32") -> int | None:
    """Multiply-adds per clock and SM on CUDA cores, in `fp32` or `fp64`."""
    return _LANES.get(kind, {}).get(capability)


def rtx_factors(name: str | None, capability: str) -> Mapping[str, int]:
    """Rates of the tensor cores of an RTX card ÷ its fp32 rate, by kind; empty for others.

    The SMs of a generation are the same in all of its cards: RTX 2080 Ti, 3090, 4090 and 5090 have
    these ratios, where sums are fp32. Cards for workstations of these generations have twice as
    much: RTX A5000 27.8 TFLOP/s in fp32, 55.6 in TF32, 111 in bf16.
    """
    card = _RTX_NAME.match(name or "")
    if capability not in _RTX or not card:
        return {}
    factor = 1 if card["game"] else 2
    return {kind: factor * ratio for kind, ratio in _RTX[capability].items()}


_RTX_NAME = re.compile(r"(?:NVIDIA )?(?:(?P<game>GeForce )|Quadro )?RTX (?:A?\d{4}|PRO )")
_RTX: Mapping[str, Mapping[str, int]] = {
    "7.5": {"fp16": 4},
    "8.6": {"tf32": 1, "bf16": 2, "fp16": 2},
    "8.9": {"tf32": 1, "bf16": 2, "fp16": 2},
    "12.0": {"tf32": 1, "bf16": 2, "fp16": 2},
}
_LANES: Mapping[str, Mapping[str, int]] = {
    "fp32": {
        **dict.fromkeys(("7.0", "7.2", "7.5", "8.0"), 64),
        **dict.fromkeys(("8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"), 128),
    },
    "fp64": {"7.0": 32, "8.0": 32, "9.0": 64, "10.0": 64, "7.5": 2, "8.6": 2, "8.9": 2, "12.0": 2},
}


# One way: half of what data sheets give for NVLink. Cards have it with a bridge only.
_NVLINK = {
    "V100 SXM": 150 * _GB,
    "A100 SXM 80GB": 300 * _GB,
    **dict.fromkeys(("H100 SXM", "H200 SXM", "GH200"), 450 * _GB),
    **dict.fromkeys(("B200", "GB200", "B300"), 900 * _GB),
}
_A100 = "fp64 9.7 fp64-tensor 19.5 fp32 19.5 tf32 156 bf16 312 int8 624"
_H100 = "fp64 33.5 fp64-tensor 66.9 fp32 66.9 tf32 494.7 bf16 989.4 fp8 1978.9 int8 1978.9"
_NVL = "tf32 417.5 bf16 835.5 fp8 1670.5"
# TFLOP/s by product. Tensor cores with bf16 compute fp16 at the same rate.
_TFLOP_PER_S = {
    "V100 SXM": "fp64 7.8 fp32 15.7 fp16 125",
    "V100 PCIe": "fp64 7.0 fp32 14.0 fp16 112",
    "V100S PCIe": "fp64 8.2 fp32 16.4 fp16 130",
    "T4": "fp32 8.1 fp16 65 int8 130",
    "A10": "fp32 31.2 tf32 62.5 bf16 125 int8 250",
    "A30": "fp64 5.2 fp64-tensor 10.3 fp32 10.3 tf32 82 bf16 165 int8 330",
    "A40": "fp32 37.4 tf32 74.8 bf16 149.7 int8 299.3",
    **dict.fromkeys(("A100 40GB", "A100 SXM 80GB", "A100 PCIe 80GB"), _A100),
    "L4": "fp32 30.3 tf32 60 bf16 121 fp8 242.5 int8 242.5",
    "L40": "fp32 90.5 tf32 90.5 bf16 181.05 fp8 362 int8 362",
    "L40S": "fp32 91.6 tf32 183 bf16 362.05 fp8 733 int8 733",
    **dict.fromkeys(("H100 SXM", "H200 SXM", "GH200"), _H100),
    "H100 PCIe": "fp64 25.6 fp64-tensor 51.2 fp32 51.2 tf32 378 bf16 756 fp8 1513 int8 1513",
    **dict.fromkeys(("H100 NVL", "H200 NVL"), _NVL),
    "B200": "fp64 37 fp64-tensor 37 fp32 75 tf32 1100 bf16 2250 fp8 4500 fp4 9000 int8 4500",
    "GB200": "fp64 40 fp64-tensor 40 fp32 80 tf32 1250 bf16 2500 fp8 5000 fp4 10000 int8 5000",
    "B300": "fp32 75 tf32 1125 bf16 2250 fp8 4500 fp4 13125",
    "RTX 3090": "fp32 35.6 tf32 35.6 bf16 71 int8 284",
    "RTX 4090": "fp32 82.6 tf32 82.6 bf16 165.2 fp8 330.3 int8 660.6",
    "RTX 5090": "fp32 104.8 bf16 209.5 fp8 419 fp4 1676 int8 838",
}


def _rates(
    pattern: str,
    product: str,
    sms: int | None,
    memory_gb: int | None,
    link: int | None,
    l2_mib: int | None,
    source: str,
) -> tuple[re.Pattern[str], Rates]:
    words = _TFLOP_PER_S[product].split()
    rates = {
        kind: float(round(float(tera) * _TERA))
        for kind, tera in zip(words[::2], words[1::2], strict=True)
    }
    rates |= {"fp16": rates["bf16"]} if "bf16" in rates else {}
    flop_per_s = MappingProxyType({kind: rates[kind] for kind in FLOP_KINDS if kind in rates})
    memory = memory_gb * _GB if memory_gb else None
    l2 = l2_mib << 20 if l2_mib else None
    return re.compile(pattern), Rates(product, sms, flop_per_s, memory, link, l2, source)


# The name that the driver reports; product, SMs, GB/s of memory, link, MiB of L2 cache, source.
_KNOWN = (
    _rates(r"V100-SXM[23]-(16|32)GB.*", "V100 SXM", 80, 900, _PCIE_3, 6, "V100 data sheet"),
    _rates(r"V100-PCIE-(16|32)GB", "V100 PCIe", 80, 900, _PCIE_3, 6, "V100 data sheet"),
    _rates(r"V100S-PCIE-32GB", "V100S PCIe", 80, 1134, _PCIE_3, 6, "V100 data sheet"),
    _rates(r"T4", "T4", 40, 320, _PCIE_3, 4, "T4 data sheet"),
    _rates(r"A10", "A10", 72, 600, _PCIE_4, 6, "A10 data sheet"),
    _rates(r"A30", "A30", 56, 933, _PCIE_4, 24, "A30 data sheet"),
    _rates(r"A40", "A40", 84, 696, _PCIE_4, 6, "A40 data sheet"),
    _rates(
        r"A100-SXM4-40GB|A100-PCIE-40GB", "A100 40GB", 108, 1555, _PCIE_4, 40, "A100 data sheet"
    ),
    _rates(
        r"A100-SXM4-80GB|A100-SXM-80GB", "A100 SXM 80GB", 108, 2039, _PCIE_4, 40, "A100 data sheet"
    ),
    _rates(r"A100 80GB PCIe", "A100 PCIe 80GB", 108, 1935, _PCIE_4, 40, "A100 data sheet"),
    _rates(r"L4", "L4", 58, 300, _PCIE_4, 48, "L4 data sheet"),
    _rates(r"L40", "L40", 142, 864, _PCIE_4, 96, "L40 data sheet"),
    _rates(r"L40S", "L40S", 142, 864, _PCIE_4, 96, "L40S data sheet"),
    _rates(r"H100 80GB HBM3|H100 SXM5.*", "H100 SXM", 132, 3350, _PCIE_5, 50, "H100 data sheet"),
    _rates(r"H100 PCIe", "H100 PCIe", 114, 2000, _PCIE_5, 50, "H100 data sheet"),
    _rates(r"H100 NVL", "H100 NVL", 132, 3900, _PCIE_5, 50, "H100 data sheet"),
    _rates(r"H200( SXM.*)?", "H200 SXM", 132, 4800, _PCIE_5, 50, "H200 data sheet"),
    _rates(r"H200 NVL", "H200 NVL", 132, 4800, _PCIE_5, 50, "H200 data sheet"),
    _rates(r"GH200 (480GB|120GB)", "GH200", 132, None, _C2C, 50, "GH200 data sheet"),
    _rates(r"B200", "B200", 148, 7700, _PCIE_5, None, "Blackwell data sheet"),
    _rates(r"GB200", "GB200", None, 8000, _C2C, None, "Blackwell data sheet"),
    _rates(r"B300( SXM6.*)?", "B300", None, 8000, None, None, "HGX B300 platform page"),
    _rates(r"RTX 3090", "RTX 3090", 82, 936, _PCIE_4, 6, "GA102 whitepaper"),
    _rates(r"RTX 4090", "RTX 4090", 128, 1008, _PCIE_4, 72, "Ada whitepaper"),
    _rates(r"RTX 5090", "RTX 5090", 170, 1792, _PCIE_5, 96, "RTX Blackwell whitepaper"),
)


# Figures of a GPU given by the user: `--peak bandwidth=4.8e12`, `--peak sms=132`.
#
# They take precedence over the trace and the data sheets, for a GPU that neither knows or that
# runs below its data sheet.

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

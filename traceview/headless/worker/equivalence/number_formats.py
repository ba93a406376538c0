"""The element formats of Triton's tensors: made-up values as bits, and bits as numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from traceview.records import record

Numbers = npt.NDArray[np.float64]
Bits = npt.NDArray[Any]
# Neighbouring runs differ in magnitude, as data do: the maximum of a group then depends on where
# the group ends, so that a wrong group size shows.
_RUN = 32
_EXPONENTS = 4
_PLAIN = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


@record
class NumberFormat:
    """The format of one element type of Triton, by its name in signatures: fp32, i8, fp8e4nv."""

    name: str

    @property
    def bytes(self) -> int:
        """The size of an element."""
        return max(1, int("".join(c for c in self.name.partition("e")[0] if c.isdigit())) // 8)

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point format."""
        return self.name.startswith(("fp", "bf"))

    @property
    def tolerance(self) -> float:
        """The relative difference that another order of additions may make.

        Some units in the last place: 2^-7 of the 8 bits of bf16, 2^-2 of the 3 or 4 of fp8; of
        fp32, which sums thousands of products, 2^-13.
        """
        known = {"fp64": 2.0**-40, "fp32": 2.0**-13, "fp16": 2.0**-8, "bf16": 2.0**-6}
        return known.get(self.name, 2.0**-2)

    def random(self, count: int, generator: np.random.Generator, *, positive: bool) -> Bits:
        """Made-up elements as bits: finite floats, any bytes, 0 or 1 of booleans; else zeros."""
        if self.is_float:
            runs = generator.integers(-_EXPONENTS, _EXPONENTS // 2, -(-count // _RUN))
            numbers = generator.standard_normal(count) * np.repeat(2.0**runs, _RUN)[:count]
            return self._encoded(np.abs(numbers) + 1e-3 if positive else numbers)
        unsigned = f"u{self.bytes}"
        if self.name in ("i8", "u8"):
            return generator.integers(0, 256, count).astype(unsigned)
        if self.name in ("i1", "u1"):
            return generator.integers(0, 2, count).astype(unsigned)
        return np.zeros(count, unsigned)

    def decoded(self, bits: Bits) -> Numbers:
        """The numbers that bits encode, as float64."""
        if self.name in _PLAIN:
            return bits.view(_PLAIN[self.name]).astype(np.float64)
        if self.name == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        if self.is_float:
            numbers: Numbers = _table(self.name)[bits]
            return numbers
        signed = "i" if self.name.startswith("i") and self.bytes > 1 else ""
        kind = f"{signed or 'u'}{self.bytes}" if self.name != "i8" else "i1"
        return bits.view(kind).astype(np.float64)

    def _encoded(self, numbers: Numbers) -> Bits:
        bits: Bits
        if self.name in _PLAIN:
            return numbers.astype(_PLAIN[self.name]).view(f"u{self.bytes}")
        if self.name == "bf16":
            return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        table = _table(self.name)
        order = np.argsort(np.where(np.isfinite(table), table, np.inf), kind="stable")
        finite = order[: int(np.isfinite(table).sum())]
        at = np.searchsorted(table[finite], numbers).clip(0, len(finite) - 1)
        bits = finite[at].astype(np.uint8)
        return bits


@functools.cache
def _table(name: str) -> Numbers:
    """The number of each of the 256 bit patterns of an 8-bit float; specials are NaN."""
    import triton.language as tl

    dtype: Any = tl.str_to_ty(name, None)
    mantissa_bits, bias = dtype.fp_mantissa_width, dtype.exponent_bias
    bits = np.arange(256)
    mantissa = (bits & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    exponent = (bits & 0x7F) >> mantissa_bits
    normal = (1 + mantissa) * 2.0 ** (exponent - bias)
    numbers = np.where(exponent > 0, normal, mantissa * 2.0 ** (1 - bias))
    numbers = np.where(bits & 0x80, -numbers, numbers)
    specials = {"fp8e5": (bits & 0x7C) == 0x7C, "fp8e4nv": (bits & 0x7F) == 0x7F}
    table: Numbers = np.where(specials.get(name, bits == 0x80), np.nan, numbers)
    return table

"""The shape in which every source says how much work kernels did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceview.hardware.rates import FLOP_KINDS
from traceview.tables import Integers, constant

Floats = npt.NDArray[np.float64]
KINDS = (*FLOP_KINDS, "fp16-lanes")
"""Kinds of FLOP: those with a peak rate, and half precision without tensor cores."""


@dataclass(frozen=True)
class Part:
    """One entry a kernel: bytes and FLOP of that call, NaN where unknown; `kind` −1 where unknown.

    `bytes` are those moved between device memory and the GPU.
    """

    bytes: Floats
    flop: Floats
    kind: Integers

    @classmethod
    def silent(cls, kernels: int) -> Part:
        """Of kernels of which nobody knows anything, and never will."""
        nan = constant(np.nan, kernels, np.float64)
        return cls(nan, nan, constant(-1, kernels, np.int64))

    @classmethod
    def unknown(cls, kernels: int) -> Part:
        return cls(
            np.full(kernels, np.nan), np.full(kernels, np.nan), np.full(kernels, -1, np.int64)
        )

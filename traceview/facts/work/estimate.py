"""Estimates of the work of kernels, in the form that every source gives them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceview.hardware.rates import FLOP_KINDS
from traceview.records import record
from traceview.tables import Integers, constant

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

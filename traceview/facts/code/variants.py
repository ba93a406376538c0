"""Launches of a trace and variants of gathered code, by the properties that match them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field

from traceview.errors import TraceviewError
from traceview.ptx.model import Compiled, Resources
from traceview.records import record
from traceview.tables import Integers
from traceview.vocabulary.amounts import WARP_THREADS

_REQUIRED = re.compile(r"^\s*\.reqntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", re.MULTILINE)
# Observed on an H200: Nsight Systems and Nsight Compute report 16 where the cubin has 14.
_LEAST_REGISTERS = 16

Grid = tuple[int, int, int]


@record
class Launches:
    """Launches equal in all properties that distinguish variants.

    `rows` are their rows in the table of kernels, `device` is a row in devices.
    """

    name: str
    mangled: str | None
    short_name: str
    device: int
    threads: int
    registers: int
    dynamic_bytes: int
    static_bytes: int
    total_ns: int
    grids: Mapping[Grid, int]
    rows: Integers = field(compare=False, repr=False)

    @property
    def count(self) -> int:
        """The number of launches."""
        return sum(self.grids.values())


@record
class Variant:
    """The properties of a variant that its launches share; None where unknown."""

    name: str
    capability: str | None
    threads: int | None
    shared_bytes: int | None
    registers: int | None
    static_bytes: int | None

    @classmethod
    def of(cls, compiled: Compiled) -> Variant:
        """The properties of compiled code, read from its PTX, cubin and Triton metadata."""
        number = re.match(r"sm_(\d+)(\d)", compiled.arch)
        known = _resources(compiled)
        return cls(
            compiled.name,
            f"{number[1]}.{number[2]}" if number else None,
            _threads(compiled),
            compiled.dynamic_shared_bytes,
            known.registers if known else None,
            known.static_shared_bytes if known and compiled.dynamic_shared_bytes is None else None,
        )

    def fits(self, launches: Launches, capability: str | None) -> bool:
        """Whether no known property of the variant differs from that of the launches."""
        dynamic = launches.dynamic_bytes
        return (
            self.name in (launches.name, launches.mangled)
            and _runs_on(self.capability, capability)
            and self.threads in (None, launches.threads)
            and self.shared_bytes in (None, dynamic, dynamic + launches.static_bytes)
            and self.registers in (None, launches.registers, *_rounded_up(launches.registers))
            and self.static_bytes in (None, launches.static_bytes)
        )


def _rounded_up(registers: int) -> range:
    """Smaller register counts in a cubin that the driver reports as its minimum, 16."""
    return range(_LEAST_REGISTERS) if registers == _LEAST_REGISTERS else range(0)


def _runs_on(own: str | None, gpu: str | None) -> bool:
    """Whether code for one compute capability runs on another: older minor versions do."""
    if own is None or gpu is None:
        return True
    major, _, minor = own.partition(".")
    of_gpu = gpu.partition(".")
    return major == of_gpu[0] and minor <= of_gpu[2]


def _threads(compiled: Compiled) -> int | None:
    """Threads per block. For warp-specialized kernels only the PTX has them."""
    ptx = compiled.ptx or ""
    head = re.search(rf"\.entry\s+{re.escape(compiled.name)}\b[^{{]*", ptx)
    required = _REQUIRED.search(head[0]) if head else None
    if required:
        return math.prod(int(side) for side in required.groups() if side)
    return compiled.num_warps * WARP_THREADS if compiled.num_warps else None


def _resources(compiled: Compiled) -> Resources | None:
    """The resources that the kernel uses; None where the cubin cannot be read."""
    from traceview.ptx.sass import cubin as cubin_file

    try:
        known = cubin_file.resources(compiled.cubin) if compiled.cubin else {}
    except TraceviewError:
        return None
    return known.get(compiled.name)

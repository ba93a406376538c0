"""What the launches of a trace and the variants of gathered code have in common, side by side."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from traceview.errors import TraceviewError
from traceview.hardware.limits import WARP_THREADS
from traceview.ptx.model import Compiled, Resources
from traceview.tables import Integers

_REQUIRED = re.compile(r"^\s*\.reqntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", re.MULTILINE)
# Seen on an H200: Nsight Systems and Nsight Compute report 16 where the cubin says 14.
_LEAST_REGISTERS = 16

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Launches:
    """Launches that agree in all by which variants are told apart.

    `rows` are theirs in the table of kernels, `device` is a row in devices.
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
        """How many they are."""
        return sum(self.grids.values())


@dataclass(frozen=True)
class Variant:
    """What a launch of a variant looks like; None where it is not known."""

    name: str
    capability: str | None
    threads: int | None
    shared_bytes: int | None
    registers: int | None
    static_bytes: int | None

    @classmethod
    def of(cls, compiled: Compiled) -> Variant:
        """By its PTX, its cubin, and what Triton said of it."""
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
        """Whether nothing that is known speaks against it."""
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
    """What a cubin may say of a launch that the driver reports with its least of 16 registers."""
    return range(_LEAST_REGISTERS) if registers == _LEAST_REGISTERS else range(0)


def _runs_on(own: str | None, gpu: str | None) -> bool:
    """Whether code of one compute capability runs on a GPU of another: an older minor one does."""
    if own is None or gpu is None:
        return True
    major, _, minor = own.partition(".")
    of_gpu = gpu.partition(".")
    return major == of_gpu[0] and minor <= of_gpu[2]


def _threads(compiled: Compiled) -> int | None:
    """Threads of a block. Of a kernel with warps of several kinds, only the PTX tells."""
    ptx = compiled.ptx or ""
    head = re.search(rf"\.entry\s+{re.escape(compiled.name)}\b[^{{]*", ptx)
    required = _REQUIRED.search(head[0]) if head else None
    if required:
        return math.prod(int(side) for side in required.groups() if side)
    return compiled.num_warps * WARP_THREADS if compiled.num_warps else None


def _resources(compiled: Compiled) -> Resources | None:
    """What the kernel takes of an SM; None where nothing here can read the cubin."""
    from traceview.ptx.sass import cubin as cubin_file

    try:
        known = cubin_file.resources(compiled.cubin) if compiled.cubin else {}
    except TraceviewError:
        return None
    return known.get(compiled.name)

"""What is said of one compiled kernel: the shape of the report, before it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from traceview.hardware import Occupancy
from traceview.inspect.occupancy import Sms
from traceview.ptx.accesses import TensorOp
from traceview.ptx.model import Access, Compiled, Function, Kind, SourceLine

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")


def where(source: SourceLine | None) -> str:
    """A source line as a finding calls it: `gelu.py:31`."""
    return f"{PurePath(source.file).name}:{source.line}" if source else "an unknown line"


@dataclass(frozen=True)
class Finding:
    """Something to change in a kernel.

    `message` holds its number, `action` is an imperative, `evidence` tells what the message
    stands on: what was seen in the code, or which recompilation showed it. `source` is the line
    to change, where it is one. `cause` is the part of the message that says why, where it has one.
    """

    severity: Severity
    message: str
    action: str
    evidence: str
    source: SourceLine | None = None
    cause: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class Difference:
    """A source line whose accesses are not the same in SASS as in PTX.

    `change` is `narrowed` if SASS moves fewer bits (ptxas drops what is never used), `split` if it
    moves as many in smaller pieces, `widened` if in larger ones.
    """

    source: SourceLine | None
    kind: Kind
    space: str
    change: Literal["narrowed", "split", "widened"]
    ptx: str
    sass: str


@dataclass(frozen=True)
class KernelReport:
    """All that is known of one kernel. A part that could not be had is None; `notes` say why.

    Bytes of shared memory are a block's, registers and spills a thread's. `ptx` and `sass` are
    the two listings. `waves` are the blocks of the launch ÷ those that the GPU holds at once; `sms`
    says on how many SMs, and whether that is assumed.
    `elements_per_thread` is defined in traceview.ptx.elements_per_thread.
    """

    compiled: Compiled
    ptx: Function | None
    sass: Function | None
    accesses: tuple[Access, ...]
    differences: tuple[Difference, ...]
    elements_per_thread: int | None
    instruction_mix: Mapping[str, int]
    tensor_ops: tuple[TensorOp, ...]
    barriers: int | None
    shuffles: int | None
    registers: int | None
    spill_bytes: int | None
    stack_bytes: int | None
    static_shared_bytes: int | None
    dynamic_shared_bytes: int | None
    occupancy: Occupancy | None
    waves: float | None
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    sms: Sms | None = None

    @property
    def name(self) -> str:
        """The kernel's name as compiled."""
        return self.compiled.name

    @property
    def shared_memory_bytes(self) -> int | None:
        """Static and dynamic shared memory of a block; None if neither is known."""
        known = [b for b in (self.static_shared_bytes, self.dynamic_shared_bytes) if b is not None]
        return sum(known) if known else None

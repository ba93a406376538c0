"""A claim on some idle gaps of one GPU, with what is said of them, while it is put together.

GPUs that idle at the same time lose the time of the program once. So the time at stake is that of
one GPU, and a share of its own steady time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceview.base.findings import Severity, Subject
from traceview.base.tables import Cell, Mask
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.analyses.wording import lost_in
from traceview.traces.facts.idle.gaps import device_work, gaps, steady_spans_ns
from traceview.traces.facts.idle.typical import typical_gap
from traceview.traces.rules import TimeClaim, gpu_name, gpu_subject
from traceview.traces.trace import Trace

MESSAGE = (
    "{gpu} sat idle for {idle_ns}{counted} {lost}[, not counting {apart_ns} of {kinds}]"
    "[, not counting {compiling_ns} of compilation]."
)
"""`The GPU sat idle for 147 ms (135 gaps) waiting …`; GPUs are numbered if several worked."""
_LEAST_PART = 0.02


@dataclass
class IdleClaim:
    """Idle gaps of a GPU (row in devices), a mask, of whose time `idle_ns` counts.

    `lost` follows `The GPU sat idle for 147 ms (135 gaps)`. `names_part` is True once a sentence
    names less than all of the idle time: "of that" would refer to it. `subject` is the line to
    change, if one is known. `outside` is as in `Finding`.
    """

    trace: Trace
    device: int
    gaps: Mask
    idle_ns: int
    lost: str
    remedy: str
    values: dict[str, Cell] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    names_part: bool = False
    subject: Subject | None = None
    outside: bool = False

    def say(self, text: str, **values: Cell) -> None:
        """Add a sentence, which starts with a blank, and its values."""
        self.said.append(text)
        self.values.update(values)

    def say_part(self, name: str, part_ns: int, rest: str, **values: Cell) -> None:
        """Add a sentence on a part of the idle time: `147 ms of that` and the rest.

        A part that is too small is left out.
        """
        if part_ns >= _LEAST_PART * self.idle_ns:
            self.names_part |= part_ns != self.idle_ns
            self.say(f" {{{name}/idle_ns}} {rest}", **{name: part_ns}, **values)

    def claim(
        self, severity: Severity, table: str, row: dict[str, Cell], gap: int | None = None
    ) -> TimeClaim:
        """The claim, shown by a row of a table and by a gap: a typical one unless it is given.

        Time of warm-up is not part of a step.
        """
        every, own = gaps(self.trace), self.gaps
        if gap is None and (own & ~every.one_time).any():
            gap = typical_gap(self.trace, every, own)
        elif gap is None:
            gap = int(np.argmax(np.where(own, every.idle_ns, -1)))
        steady = not every.one_time[gap]
        alone = len(device_work(self.trace)) == 1
        # Rare samples stand for gaps without samples too, whose number is unknown.
        counted = " ({gaps:gap})" if every.idle_ns[own].sum() >= self.idle_ns else ""
        gpu = "The GPU" if alone else gpu_name(self.trace, self.device)
        return TimeClaim(
            self.subject or gpu_subject(self.trace, self.device),
            {"idle_ns": self.idle_ns, "gaps": every.count(own), **self.values},
            table,
            row,
            saved_ns=self.idle_ns,
            span_ns=steady_spans_ns(self.trace)[self.device] if steady else 0,
            window=(int(every.start_ns[gap]), int(every.end_ns[gap])),
            cause=CAUSE_NAMES[every.cause[gap]] if steady else "",
            lost=lost_in(every, own) if steady else None,
            words={"gpu": gpu, "counted": counted, "lost": self.lost, **self.words},
            said=tuple(self.said),
            remedy=self.remedy,
            severity=severity,
            outside=self.outside,
        )

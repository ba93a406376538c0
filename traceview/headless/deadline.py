"""The time limit that all trials of one invocation share."""

from __future__ import annotations

import math
import time

from traceview.records import record


@record
class Deadline:
    """A moment on the monotonic clock in seconds, which all processes of a machine share."""

    at_s: float = math.inf

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The moment `seconds` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 once it has passed."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether it has passed, so that no more work is to begin."""
        return self.left_s <= 0.0

    def shared(self, among: int) -> Deadline:
        """The end of the first of `among` equal parts of the time left."""
        return Deadline.after(self.left_s / max(among, 1)) if math.isfinite(self.at_s) else self

    def no_sooner_than(self, seconds: float) -> Deadline:
        """This moment, or `seconds` from now if that is later."""
        return Deadline(max(self.at_s, time.monotonic() + seconds))

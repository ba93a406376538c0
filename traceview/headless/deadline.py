"""The moment until which all trials of one invocation may go on."""

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
        """The moment in so many seconds."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 once it has passed."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether nothing more is to be begun."""
        return self.left_s <= 0.0

    def shared(self, among: int) -> Deadline:
        """The end of the first of so many equal parts of what is left."""
        return Deadline.after(self.left_s / max(among, 1)) if math.isfinite(self.at_s) else self

    def no_sooner_than(self, seconds: float) -> Deadline:
        """This moment, or the one in so many seconds if that is later."""
        return Deadline(max(self.at_s, time.monotonic() + seconds))

"""The request to a worker process to run and compile a script, as JSON."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, field

from traceview.headless.compile_options import CompileOptions
from traceview.records import record

# The time limit that all trials of one invocation share.


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


@record
class Request:
    """A script or module to run, and how to compile its kernels.

    One of `file` and `module` is set. `capability` is the compute capability of the fake GPU, such
    as "9.0". `began_s` is when the time for the answer began, on the monotonic clock.
    """

    file: str | None
    module: str | None
    capability: str
    options: CompileOptions
    began_s: float = field(default_factory=time.monotonic)

    def to_json(self) -> str:
        """The request as one JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """The request that `to_json` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "options": CompileOptions(**fields["options"])})

"""The request to a worker process to run and compile a script, as JSON."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, field

from traceview.headless.compile_options import CompileOptions
from traceview.records import record


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

"""The process that records one rank for `record --nproc`, and reports to its parent process.

It writes one JSON object per line to a pipe: notes, the exit status of the program as soon as it
has ended, and finally the recording or the error.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from traceview.base.errors import TraceviewError
from traceview.traces.recorders.options import RecordOptions
from traceview.traces.recorders.recording import record


def main(request: str, pipe: str) -> None:
    """Record the program that the file `request` describes; `pipe` is a file descriptor."""
    job = json.loads(Path(request).read_text("utf-8"))
    with os.fdopen(int(pipe), "w", encoding="utf-8") as reports:

        def report(**message: Any) -> None:
            print(json.dumps(message), file=reports, flush=True)

        # JSON has lists for tuples.
        options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in job["options"].items()
        }
        try:
            recording = record(
                job["words"],
                Path(job["out"]),
                backend=job["backend"],
                options=RecordOptions(**options),
                **job["flags"],
                note=lambda line: report(note=line),
                ended=lambda status: report(ended=status),
            )
        except TraceviewError as error:
            report(error={"what": error.what, "remedy": error.remedy})
            return
        names = {name: getattr(recording, name) for name in ("path", "report")}
        written = {name: path and str(path) for name, path in names.items()}
        ending = {"exit_status": recording.exit_status, "interrupted": recording.interrupted}
        report(recording={**written, **ending})

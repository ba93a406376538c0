"""Ask a program something: run it with a time limit and keep what it says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 20.0


@dataclass(frozen=True)
class Answer:
    """What a program said, and its exit status; None if it could not run or did not end."""

    status: int | None
    out: str
    err: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 0

    @property
    def text(self) -> str:
        return f"{self.out}\n{self.err}"

    @property
    def evidence(self) -> str:
        """The first line that it said, or how it ended."""
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines()]
        ended = f"it exits with status {self.status} and says nothing"
        return next((line[:200] for line in lines if line), ended)


def ask(
    command: Sequence[str | Path],
    *,
    patience_s: float = PATIENCE_S,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Answer:
    """Run a command without input and wait for it, `patience_s` seconds at most.

    `environment` is added to the present one. Never raises: a command that cannot run is an answer.
    """
    try:
        done = subprocess.run(  # noqa: S603 (the whole purpose)
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_s,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            errors="replace",
            # Ctrl-C is for us to handle: a terminal would send it to the program, too.
            process_group=0,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(None, "", f"it did not answer within {patience_s:g} s")
    except OSError as error:
        return Answer(None, "", f"it cannot run: {error.strerror or error}")
    return Answer(done.returncode, done.stdout, done.stderr)

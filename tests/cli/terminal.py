"""A program in a real pseudo-terminal: what it draws, and keys pressed when something shows."""

import os
import pty
import re
import select
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from signal import SIGKILL
from termios import TIOCSWINSZ

from tests.headless.forked_python import start_script

CTRL_C = "\x03"
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
_LIMIT_S = 60
_PATIENCE = 20


@dataclass(frozen=True)
class Session:
    """What a program drew until it ended, and its exit status."""

    status: int
    raw: str

    @property
    def text(self) -> str:
        return _CODES.sub("", self.raw)


def in_terminal(
    arguments: Sequence[str],
    keys: Sequence[tuple[str, str]] = (),
    *,
    environment: Mapping[str, str],
    rows: int = 24,
    columns: int = 80,
) -> Session:
    """Run `traceview` with these arguments; each key is pressed once its pattern has shown."""
    terminal, of_program = pty.openpty()
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    command = [sys.executable, "-m", "traceview", *arguments]
    program = start_script(command, environment, (of_program,) * 3)
    os.close(of_program)
    try:
        raw = _drawn(terminal, list(keys))
    except TimeoutError:
        program.send_signal(SIGKILL)
        raise
    finally:
        os.close(terminal)
        status = program.wait()
    return Session(status, raw)


def _drawn(terminal: int, keys: list[tuple[str, str]]) -> str:
    """What is drawn. A key that nothing follows is pressed again: Ctrl-C discards typed keys."""
    raw, seen, end, pressed, idle = b"", 0, time.monotonic() + _LIMIT_S, "", 0
    while time.monotonic() < end:
        if keys and re.search(keys[0][0].encode(), raw[seen:]):
            seen = len(raw)
            pressed, idle = keys.pop(0)[1], 0
            os.write(terminal, pressed.encode())
        if not select.select([terminal], [], [], 0.1)[0]:
            idle += 1
            if pressed not in ("", CTRL_C) and idle % _PATIENCE == 0:
                os.write(terminal, pressed.encode())
            continue
        try:
            raw += os.read(terminal, 1 << 16)
        except OSError:  # how Linux says that the program has closed the terminal
            return raw.decode()
    raise TimeoutError(raw[-400:])

"""Entry point of the command `traceview` and of `python -m traceview`."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def main() -> NoReturn:
    """Run the command; a signal while its modules load ends the process without a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # An ignored signal, such as SIGINT of a background job, stays ignored.
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _leave)
    from traceview.cli import main as command

    command()


def _leave(number: int, _: FrameType | None) -> NoReturn:
    """End at once: before and after the command runs there is nothing to tidy up."""
    os._exit(128 + number)


if __name__ == "__main__":
    main()

"""Entry point of the command `traceview` and of `python -m traceview`."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command; Ctrl-C while its modules load ends the process without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    # An ignored SIGINT, such as that of a background job, stays ignored.
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from traceview.cli import main as command

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    command()


if __name__ == "__main__":
    main()

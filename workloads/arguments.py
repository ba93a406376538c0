"""What the programs of this folder take from their command line, asked for in one place.

Each describes itself with its docstring: `--help` shows what it does and what a report should find.
What cannot be is refused in one line, before anything runs.
"""

import argparse
import re
import sys
from pathlib import Path
from types import TracebackType

import torch

TOO_LARGE = re.compile("allocate|out of memory|overflow", re.IGNORECASE)


def count(text: str) -> int:
    """A whole number, 1 or more: steps, and sizes. Raises ArgumentTypeError for others."""
    return _whole(text, 1)


def place(text: str) -> int:
    """A whole number, 0 or more. Raises ArgumentTypeError for others."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    # Of more digits than torch takes, or of other alphabets, int() makes numbers too.
    if not re.fullmatch(r"[0-9]{1,15}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"give a whole number, {least} or more, not {text[:40]}")
    return int(text)


def milliseconds(text: str) -> float:
    """A time of 0 or more, an hour at most. Raises ArgumentTypeError for others."""
    if not re.fullmatch(r"[0-9]{1,7}(\.[0-9]*)?", text) or float(text) > 3_600_000:
        raise argparse.ArgumentTypeError(f"give milliseconds, such as 20 or 0.5, not {text[:40]}")
    return float(text)


class Arguments(argparse.ArgumentParser):
    """A parser with --steps, where `steps` gives the usual number, and --device.

    `of` says what a step is where it is not plain."""

    def __init__(self, docstring: str | None, steps: int | None = None, of: str = "") -> None:
        first, *paragraphs = (docstring or "").split("\n\n")
        expected = [text for text in paragraphs if text.startswith("Expect: ")]
        seen = (
            f"traceview record {sys.argv[0]}, then traceview report {Path(sys.argv[0]).stem}.sqlite"
        )
        super().__init__(
            description=first, epilog=f"{' '.join(expected)} To see it on a GPU: {seen} --html"
        )
        if steps:
            self.add_argument("--steps", type=count, default=steps, help=f"{of}default: {steps}")
        self.add_argument(
            "--device",
            choices=("auto", "cuda", "cpu"),
            default="auto",
            help="default: cuda where torch sees a GPU, else cpu",
        )

    def given(self) -> argparse.Namespace:
        """What was asked for, with `device` as cuda or cpu. Leaves with 2 where it cannot be."""
        asked = self.parse_args()
        seen = torch.cuda.is_available()
        if asked.device == "cuda" and not seen:
            self.error("argument --device: torch sees no GPU here that CUDA can use")
        if asked.device == "auto":
            asked.device = "cuda" if seen else "cpu"
        sys.excepthook = self._too_large_in_a_line
        return asked

    def _too_large_in_a_line(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Where the sizes asked for do not fit, no traceback says more than that."""
        if not isinstance(error, (MemoryError, RuntimeError)) or not TOO_LARGE.search(str(error)):
            sys.__excepthook__(kind, error, trace)
            return
        told = str(error).partition("\n")[0]
        print(f"{self.prog}: error: too large for this machine: {told}", file=sys.stderr)

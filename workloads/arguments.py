"""The command line of the programs in this folder.

Each describes itself with its docstring: `--help` shows what it does and what a report should
find. Invalid values are refused in one line before anything runs.
"""

import argparse
import re
import sys
from pathlib import Path
from types import TracebackType

import torch

TOO_LARGE = re.compile("allocate|out of memory|overflow", re.IGNORECASE)


def count(text: str) -> int:
    """Parse a whole number of at least 1. Raises ArgumentTypeError."""
    return _whole(text, 1)


def place(text: str) -> int:
    """Parse a whole number of at least 0. Raises ArgumentTypeError."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    # int() also accepts other alphabets, and more digits than torch does.
    if not re.fullmatch(r"[0-9]{1,15}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"give a whole number, {least} or more, not {text[:40]}")
    return int(text)


def milliseconds(text: str) -> float:
    """Parse a time between 0 and an hour, in ms. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[0-9]{1,7}(\.[0-9]*)?", text) or float(text) > 3_600_000:
        raise argparse.ArgumentTypeError(f"give milliseconds, such as 20 or 0.5, not {text[:40]}")
    return float(text)


class Arguments(argparse.ArgumentParser):
    """A parser with --device and, if `steps` gives their default number, --steps.

    `of` explains what a step is, if that is not obvious.
    """

    def __init__(self, docstring: str | None, steps: int | None = None, of: str = "") -> None:
        first, *paragraphs = (docstring or "").split("\n\n")
        expected = [text for text in paragraphs if text.startswith("Expect: ")]
        command = (
            f"traceview record {sys.argv[0]}, then traceview report {Path(sys.argv[0]).stem}.sqlite"
        )
        super().__init__(
            description=first, epilog=f"{' '.join(expected)} To see it on a GPU: {command} --html"
        )
        if steps:
            self.add_argument("--steps", type=count, default=steps, help=f"{of}default: {steps}")
        self.add_argument(
            "--device",
            choices=("auto", "cuda", "cpu"),
            default="auto",
            help="default: cuda if torch sees a GPU, else cpu",
        )

    def given(self) -> argparse.Namespace:
        """Parse the command line, with `device` as cuda or cpu. Exits with 2 if it is invalid."""
        args = self.parse_args()
        has_gpu = torch.cuda.is_available()
        if args.device == "cuda" and not has_gpu:
            self.error("argument --device: torch sees no GPU here that CUDA can use")
        if args.device == "auto":
            args.device = "cuda" if has_gpu else "cpu"
        sys.excepthook = self._too_large_in_a_line
        return args

    def _too_large_in_a_line(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Report sizes that do not fit in memory in one line, as a traceback adds nothing."""
        if not isinstance(error, (MemoryError, RuntimeError)) or not TOO_LARGE.search(str(error)):
            sys.__excepthook__(kind, error, trace)
            return
        first = str(error).partition("\n")[0]
        print(f"{self.prog}: error: too large for this machine: {first}", file=sys.stderr)

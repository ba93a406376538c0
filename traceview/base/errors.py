"""Errors that traceview raises, as one tree.

TraceviewError              base: what happened, the evidence, what to do
├── TraceFormatError        the file is not a readable trace
├── TooLargeError           the trace needs more memory than is free
├── MissingTableError       the trace does not contain this data
├── ToolNotFoundError       a tool such as nsys is missing or broken
├── LibraryError            the C library is missing or does not fit
├── RecordingError          a program could not be recorded or its recording exported
├── PtxSyntaxError          the text is not valid PTX, with line and column
├── TimeUpError             a time limit is reached: of trials, or of a script
├── OutputExistsError       the output file exists already
└── InputError              a name, range or option is invalid for this input
    └── ComparisonRefusedError  a comparison of these recordings makes no sense
"""

import struct
from collections.abc import Sequence
from pathlib import Path

MALFORMED = (struct.error, LookupError, ValueError, ArithmeticError, StopIteration)
"""What code that reads a binary format raises, without checks of its own, where bytes break it.

A reader turns them into one TraceviewError where it begins. TypeError and others stay bugs.
"""


class TraceviewError(Exception):
    """Base of all errors. `what` says what happened, `remedy` what to do; the text joins both.

    The command line prints the text as one line and exits with status 1. It prints `option` in
    place of `remedy` where the remedy is spelled differently there: `--force` for `force=True`.
    """

    def __init__(self, what: str, remedy: str = "", option: str = "") -> None:
        super().__init__(_joined(what, remedy))
        self.what = what
        self.remedy = remedy
        self.option = option

    @property
    def command_text(self) -> str:
        """The text of the error on the command line."""
        return _joined(self.what, self.option or self.remedy)


def _joined(what: str, remedy: str) -> str:
    return f"{what}; {remedy}" if remedy else what


class TraceFormatError(TraceviewError):
    """The file is not a trace, is damaged, or has an unsupported old format."""


class TooLargeError(TraceviewError):
    """A report of the trace needs more memory than is free."""


class MissingTableError(TraceviewError):
    """The trace lacks a table that the analysis needs."""

    def __init__(self, table: str, how_to_record: str) -> None:
        super().__init__(f"the trace has no {table} table", f"record it with: {how_to_record}")
        self.table = table


class ToolNotFoundError(TraceviewError):
    """A required tool is missing or does not work."""


class LibraryError(TraceviewError):
    """The C library is missing, cannot be loaded, or was built from other source."""


class RecordingError(TraceviewError):
    """A program could not be recorded, or its recording could not be exported."""


class PtxSyntaxError(TraceviewError):
    """The text is not PTX, is damaged or truncated. `line` and `column` count from 1."""

    def __init__(self, name: str, line: int, column: int, what: str, remedy: str = "") -> None:
        super().__init__(f"{name}, line {line}, column {column}: {what}", remedy)
        self.line = line
        self.column = column


class TimeUpError(TraceviewError):
    """A time limit is reached: this trial was not run, or the script was stopped."""


class OutputExistsError(TraceviewError):
    """The output file exists already. Nothing was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} exists already",
            "pass force=True to overwrite it",
            "pass --force to overwrite it",
        )
        self.path = path


class InputError(TraceviewError):
    """A name, range or option that is invalid for this input."""


class ComparisonRefusedError(InputError):
    """A comparison of these recordings makes no sense. The command line exits with status 2."""


def unreadable(
    path: Path | str, error: OSError, kind: type[TraceviewError] = InputError
) -> TraceviewError:
    """The TraceviewError for an OSError raised while reading an input file."""
    # A path has the two slashes of a URL as one.
    if str(path).startswith(("http:/", "https:/")):
        return kind(f"cannot read {path}: URLs are not read", "download the file")
    return kind(f"cannot read {path}: {error.strerror or error}", "check the path")


def suggestion(name: str, names: Sequence[str], most: int | None = None) -> str:
    """The remedy for a name that is not among `names`: the closest match, then all names.

    With `most`, only so many of them, and the number of the others.
    """
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1)
    guess = f"did you mean {close[0]}? " if close else ""
    more = f" … and {len(names) - most} more" if most is not None and len(names) > most else ""
    return f"{guess}choose from: {', '.join(names[:most])}{more}"

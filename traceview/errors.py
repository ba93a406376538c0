"""Every error traceview raises on purpose, as one tree.

TraceviewError              what happened, the evidence, what to do
├── TraceFormatError        the file is not a trace that can be read
├── TooLargeError           the trace needs more memory than there is
├── MissingTableError       the trace is fine, but this was never recorded
├── ToolNotFoundError       a tool such as nsys is not on this machine, or is broken
├── RecordingError          a recording could not be made or exported
├── PtxSyntaxError          the text is not PTX, or is damaged: with line and column
├── OutputExistsError       writing would overwrite a file
└── InputError              what the user asked for does not fit the trace
"""

from pathlib import Path


class TraceviewError(Exception):
    """Base of all errors: one line that says what, the evidence and the remedy.

    The command line prints it and exits with status 1.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


class TraceFormatError(TraceviewError):
    """The file is not a trace, is damaged, or is older than what can be read."""


class TooLargeError(TraceviewError):
    """The trace is fine, but a report of it needs more memory than there is."""


class MissingTableError(TraceviewError):
    """The recording lacks a table that an answer needs."""

    def __init__(self, table: str, how_to_record: str) -> None:
        super().__init__(f"the trace has no {table}", f"record them with: {how_to_record}")
        self.table = table


class ToolNotFoundError(TraceviewError):
    """A tool that is needed is missing or does not work here."""


class RecordingError(TraceviewError):
    """The recorder ran and did not leave a usable recording."""


class PtxSyntaxError(TraceviewError):
    """The text is not PTX, is damaged or is cut off. `line` and `column` count from 1."""

    def __init__(self, name: str, line: int, column: int, what: str, remedy: str = "") -> None:
        super().__init__(f"{name}, line {line}, column {column}: {what}", remedy)
        self.line = line
        self.column = column


class OutputExistsError(TraceviewError):
    """The output file is there already; nothing was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} exists already", "pass --force (force=True) to replace it, or choose another"
        )
        self.path = path


class InputError(TraceviewError):
    """A name, range or option that does not fit this trace."""

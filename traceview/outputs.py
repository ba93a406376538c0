"""Whether an output file may be written: checked once, before any work starts."""

from __future__ import annotations

from pathlib import Path

from traceview.errors import InputError, OutputExistsError

ARCHIVE_SUFFIXES = (".gz", ".xz", ".zst")
TRACE_SUFFIXES = (".sqlite", ".nsys-rep", ".qdrep")


def unpacked_name(path: Path) -> str:
    """The file name without the suffix of a compression."""
    return path.name.removesuffix(path.suffix) if path.suffix in ARCHIVE_SUFFIXES else path.name


def check_output(
    path: Path, *, force: bool, source: Path | None = None, source_kind: str = "trace"
) -> None:
    """Raise InputError if `path` cannot be written, OutputExistsError if it exists and not `force`.

    `source` is the input, which is never overwritten, `source_kind` what messages call it. A device
    or a pipe may be written to without `force`: nothing is replaced.
    """
    if source is not None and path.resolve() == source.resolve():
        raise InputError(f"{path} is the input {source_kind}", "choose another output file")
    if path.is_dir():
        raise InputError(f"{path} is a folder", "pass the path of a file to write")
    if not path.absolute().parent.is_dir():
        raise InputError(f"folder {path.parent} does not exist", "create it or choose another")
    if path.is_file() and not force:
        raise OutputExistsError(path)


def check_report_output(path: Path, *, force: bool, source: Path, source_kind: str) -> None:
    """As `check_output`; a file named like a trace is refused even with `force`.

    `--html A.sqlite B.sqlite` reads like two inputs and would destroy the first.
    """
    if path.resolve() != source.resolve() and unpacked_name(path).endswith(TRACE_SUFFIXES):
        raise InputError(f"{path} is named like a trace", "give the output another name")
    check_output(path, force=force, source=source, source_kind=source_kind)


def check_trace_output(path: Path, *, force: bool, source: Path | None = None) -> None:
    """As `check_output`, for a trace: one plain file, put in place by a rename."""
    if path.suffix in ARCHIVE_SUFFIXES:
        raise InputError(
            f"{path} is named like an archive", "name it .sqlite and compress it afterwards"
        )
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{path} is not a regular file", "pass the path of a file to write")
    check_output(path, force=force, source=source)

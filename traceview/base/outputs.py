"""Output files and caches: check that outputs may be written, write them, keep caches private."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path

from traceview.base.errors import InputError, OutputExistsError, TraceviewError

ARCHIVE_SUFFIXES = (".gz", ".xz", ".zst")
_GZIP_LEVEL = 4
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600
REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
OWN_PAGE = '<meta name="generator" content="traceview '
_HEAD_BYTES = 4_096
TRACE_SUFFIXES = (".sqlite", *REPORT_SUFFIXES)


def unpacked_name(path: Path) -> str:
    """The file name without a compression suffix."""
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

    `--html A.sqlite B.sqlite` reads like two inputs and would destroy the first. A page that
    traceview wrote of the same source, the output of the same command before, needs no `force`.
    """
    if path.resolve() != source.resolve() and unpacked_name(path).endswith(TRACE_SUFFIXES):
        raise InputError(f"{path} is named like a trace", "give the output another name")
    again = force or _is_own_page(path, source.name)
    check_output(path, force=again, source=source, source_kind=source_kind)


def _is_own_page(path: Path, source: str) -> bool:
    """Whether a file is a page that traceview wrote about a source of that name."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    title = head.partition("<title>")[2].partition("</title>")[0]
    return OWN_PAGE in head and title.startswith(escape(source))


def check_trace_output(path: Path, *, force: bool, source: Path | None = None) -> None:
    """As `check_output`, for a trace: one plain SQLite file, put in place by a rename."""
    if path.name.lower().endswith(REPORT_SUFFIXES):
        raise InputError(f"{path} is named like a report of nsys", "name it .sqlite")
    if path.suffix.lower() == ".json":
        raise InputError(f"{path} is named like a trace of torch.profiler", "name it .sqlite")
    if path.suffix in ARCHIVE_SUFFIXES:
        raise InputError(
            f"{path} is named like an archive", "name it .sqlite and compress it afterwards"
        )
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{path} is not a regular file", "pass the path of a file to write")
    check_output(path, force=force, source=source)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new file beside `path`, which replaces `path` when the block ends.

    If the block raises, or the file cannot be renamed (TraceviewError), `path` is unchanged.
    """
    target = path.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _named_errors(path):
            yield part
            part.replace(target)
    finally:
        # A read-only folder has none.
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Turn an error of writing into one that names the output."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceviewError(f"cannot write {path}: {reason}", "choose another file") from error


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write bytes to a file, which is replaced as a whole or not at all.

    A path that ends in .gz is compressed. A device or a pipe is written to, not replaced. Raises
    TraceviewError if the file cannot be written.
    """
    target, compressed = path.resolve(), path.suffix == ".gz"
    if target.is_file() or not target.exists():
        with replacing(path) as part:
            _write(part, pieces, compressed=compressed, new=True)
        return
    with _named_errors(path):
        _write(target, pieces, compressed=compressed, new=False)


def write_folder(folder: Path, files: Iterable[tuple[str, Iterable[bytes]]]) -> int:
    """Write files, each a name and its bytes in pieces, into a folder, and return their number.

    The files appear in the folder, which is made if needed, when all of them are written; until
    then they are in a hidden folder of the same file system. Raises TraceviewError if one cannot be
    written.
    """
    target = folder.resolve()
    part = (target if target.is_dir() else target.parent) / f".{target.name}.{os.getpid()}.part"
    shown, names = folder, []
    try:
        part.mkdir()
        for name, pieces in files:
            shown = folder / name
            _write(part / name, pieces, compressed=False, new=True)
            names.append(name)
        shown = folder
        if target.is_dir():
            for name in names:
                (part / name).replace(target / name)
        else:
            part.replace(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceviewError(f"cannot write {shown}: {reason}", "choose another folder") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return len(names)


def _write(path: Path, pieces: Iterable[bytes], *, compressed: bool, new: bool) -> None:
    with path.open("xb" if new else "wb") as file:
        if not compressed:
            file.writelines(pieces)
            return
        # Without name and time, so that equal content makes equal files.
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
            packed.writelines(pieces)


def cache_folder(*parts: str) -> Path:
    """The folder `parts` in $XDG_CACHE_HOME/traceview or ~/.cache/traceview, private to the user.

    Raises OSError if it cannot be made, or if part of it is a link or belongs to another user.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(home) if home else Path.home() / ".cache"
    except RuntimeError as error:
        # An unknown user, as in some containers.
        raise OSError("the user has no home folder") from error
    return private_folder(root, "traceview", *parts)


def private_folder(root: Path, *parts: str) -> Path:
    """The folder `parts` below `root`, each of them made with mode 0700 or tightened to it.

    The umask and other programs may have left one open to others. `root` itself is the user's
    choice and stays as it is. Raises OSError as `cache_folder` does.
    """
    root.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
    folder = root
    for part in parts:
        folder = folder / part
        folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        _tighten(folder, _PRIVATE_FOLDER, os.O_DIRECTORY)
    return folder


def private_file(path: Path) -> None:
    """Make an existing file of a cache readable by its user only. Raises OSError as above."""
    _tighten(path, _PRIVATE_FILE, 0)


def _tighten(path: Path, mode: int, flags: int) -> None:
    # By descriptor: what is checked is what is changed.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | flags)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        if stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)

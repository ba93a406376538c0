"""Load a trace file of any supported format, or list the recordings in a folder."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from traceview.base.errors import TraceFormatError, unreadable
from traceview.base.outputs import REPORT_SUFFIXES, TRACE_SUFFIXES, unpacked_name
from traceview.base.stages import stage
from traceview.traces.trace import archives, foreign
from traceview.traces.trace import stored as stored
from traceview.traces.trace.kineto import USE_TRACE
from traceview.traces.trace.memory import check_fits, check_json_fits
from traceview.traces.trace.model import Trace
from traceview.traces.trace.nsys import reader as nsys
from traceview.traces.trace.sqlite import file as sqlite_file

SQLITE_MAGIC = b"SQLite format 3\x00"
USE_EXPORT = "pass an nsys SQLite export, from `traceview record` or `nsys export --type sqlite`"
SQLITE_HEADER_BYTES = 100
_REPORT = b"NVIDIA Tegra Profiler"
"""The start of .qdrep and .nsys-rep files, in all of 104 of 2020 to 2026."""
_BOM = b"\xef\xbb\xbf"
_MOST_SPACE_BYTES = 1 << 16
"""White space before JSON; torch.profiler writes none."""
_SUFFIXES = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}


def load(path: str | Path) -> Trace:
    """Read an SQLite file of nsys or `traceview record`, or a trace of torch.profiler.

    Also a Perfetto trace that traceview exported. What a file is shows in its content. Each may be
    compressed (.gz, .xz, .zst). Nothing is written to the file or next to it. Raises
    TraceFormatError if the file does not exist, cannot be read or is none of these, TooLargeError
    if there is too little memory for a report.
    """
    shown = str(path).encode("utf-8", "replace").decode()
    with _errors_naming(shown):
        foreign.check_text(_start(Path(path)))
        if is_json(Path(path)):
            return load_torch(Path(path))
        if is_protocol_buffers(Path(path)):
            return load_perfetto(Path(path))
        with unpacked(Path(path)) as plain, sqlite_file.opened(plain) as database:
            check_fits(database, shown)
            if stored.is_stored(database):
                return stored.read(database, shown)
            return nsys.read(database, shown)


def is_json(path: Path) -> bool:
    """Whether the content of a file, unpacked, begins like JSON. Raises TraceFormatError."""
    return _start(path).removeprefix(_BOM).lstrip()[:1] in (b"{", b"[")


def _start(path: Path) -> bytes:
    """The first bytes of a file, unpacked, up to some that are no white space.

    Empty if it is damaged: unpacking it as an SQLite file reports the damage.
    """
    archive = _archive(path)
    start = b""
    try:
        with path.open("rb") as packed:
            for piece in archives.unpacked_pieces(packed, archive):
                start += piece
                if start.removeprefix(_BOM).strip() or len(start) > _MOST_SPACE_BYTES:
                    break
    except archives.damage(archive):
        return b""
    return start


def is_protocol_buffers(path: Path) -> bool:
    """Whether the content of a file, unpacked, begins like a Perfetto trace or an XSpace.

    JSON may begin with the same byte, a line end. Raises TraceFormatError.
    """
    start = _start(path)
    return start.startswith(foreign.FIRST_FIELD) and not is_json(path)


def load_perfetto(path: Path) -> Trace:
    """Read a Perfetto trace that traceview exported. Raises TraceFormatError."""
    from tempfile import TemporaryDirectory

    from traceview.traces.trace import perfetto

    shown = str(path).encode("utf-8", "replace").decode()
    archive = _archive(path)
    with TemporaryDirectory(prefix="traceview-") as folder, path.open("rb") as packed:
        plain = Path(folder, "recording.sqlite")
        pieces = archives.unpacked_pieces(packed, archive)
        try:
            perfetto.write_recording(pieces, plain, path.stat().st_size)
        except archives.damage(archive) as error:
            raise _damaged(archive or "zlib", error) from error
        with sqlite_file.opened(plain) as database:
            check_fits(database, shown)
            return stored.read(database, shown)


def load_torch(path: Path) -> Trace:
    """Read a trace of torch.profiler. Raises TraceFormatError."""
    from traceview.traces.trace.kineto import reader as kineto

    shown = str(path).encode("utf-8", "replace").decode()
    archive, size = _archive(path), path.stat().st_size
    try:
        if archive is None:
            check_json_fits(size, 0, shown)
            with path.open("rb") as plain:
                return kineto.read(archives.unpacked_pieces(plain, None), shown, plain)
        with (
            path.open("rb") as packed,
            archives.ahead(archives.unpacked_pieces(packed, archive)) as pieces,
        ):

            def counted() -> Iterator[bytes]:
                unpacked_size, checked = 0, 1 << 26
                for piece in pieces:
                    stage("Reading the trace", packed.tell(), size)
                    unpacked_size += len(piece)
                    if unpacked_size > checked:
                        check_json_fits(unpacked_size, unpacked_size, shown)
                        checked *= 2
                    yield piece

            return kineto.read(counted(), shown)
    except archives.damage(archive) as error:
        raise TraceFormatError(
            f"the {archive} archive is damaged ({error})", "copy or download the file again"
        ) from error


def is_report(path: Path) -> bool:
    """Whether the file is a (compressed) report that nsys must export first, whatever its name.

    One that cannot be read, or holds nothing of this kind, is one if it is named so.
    """
    name = path.name.lower()
    named = name.removesuffix(path.suffix.lower() if _named(path) else "").endswith(REPORT_SUFFIXES)
    try:
        start = _start(path)
    except (OSError, TraceFormatError):
        return named
    return start.startswith(_REPORT) or (named and not start.startswith(SQLITE_MAGIC))


def is_trace(path: Path) -> bool:
    """Whether the file is named like a trace, or is an SQLite file of any name."""
    if not path.is_file():
        return False
    name = path.name.lower()
    plain = name.removesuffix(path.suffix.lower()) if _named(path) else name
    if plain.endswith((".sqlite", ".json", *REPORT_SUFFIXES)):
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        # `load` raises the error with its reason.
        return False


@contextmanager
def unpacked_report(path: Path) -> Iterator[Path]:
    """Decompress a report for the duration of the block. Raises TraceFormatError."""
    with _errors_naming(str(path)), _plain(path, _archive(path)) as plain:
        yield plain


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Decompress an SQLite file for the duration of the block. Raises TraceFormatError.

    Nothing is written unless the content begins like one, and no more than that says it has.
    """
    archive = _archive(path)
    # The first bytes of the content, as many as an SQLite header has.
    start = b""
    try:
        with path.open("rb") as packed:
            for piece in archives.unpacked_pieces(packed, archive):
                start += piece
                if len(start) >= SQLITE_HEADER_BYTES:
                    break
    except archives.damage(archive) as error:
        raise _damaged(archive, error) from error
    header = start[:SQLITE_HEADER_BYTES]
    if not header.startswith(SQLITE_MAGIC):
        raise _other_kind((path.stem if archive else path.name).lower(), header)
    with _plain(path, archive, _stored_size(header)) as plain:
        # A log lies beside the file itself, not beside a link to it.
        file = plain.resolve()
        stored = _stored_size(header) or SQLITE_HEADER_BYTES
        size = file.stat().st_size
        if size < stored and not sqlite_file.has_log(file):
            raise TraceFormatError(
                f"the SQLite file is truncated (its header says {stored:,} bytes, it has {size:,})",
                "copy or export the file again",
            )
        yield file


@contextmanager
def _errors_naming(shown: str) -> Iterator[None]:
    """Put the file name into the errors of the block."""
    try:
        yield
    except TraceFormatError as error:
        raise TraceFormatError(f"cannot read {shown}: {error.what}", error.remedy) from error
    except OSError as error:
        raise unreadable(shown, error, TraceFormatError) from error


@contextmanager
def _plain(path: Path, archive: str | None, size: int = 0) -> Iterator[Path]:
    """The file itself, or its decompressed copy in a temporary folder.

    `size` is that of the content in bytes, 0 if unknown.
    """
    if archive is None:
        yield path
        return
    from shutil import disk_usage
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="traceview-") as folder:
        plain = Path(folder, path.stem)
        if size > archives.most_content(path.stat().st_size):
            raise archives.too_dense(archive)
        if size > disk_usage(folder).free:
            raise _no_space(plain)
        _unpack(path, archive, plain, size)
        yield plain


def _archive(path: Path) -> str | None:
    if path.is_dir():
        raise TraceFormatError("it is a folder", "pass the trace file")
    if path.is_fifo() or (path.name == "-" and not path.exists()):
        # Readers open the file twice, and seek in it.
        raise TraceFormatError("a trace is not read from a pipe", "write it to a file first")
    with path.open("rb") as file:
        start = file.read(6)
    if not start:
        raise TraceFormatError("the file is empty", USE_TRACE)
    kinds = [name for magic, name in archives.ARCHIVES.items() if start.startswith(magic)]
    named = _named(path)
    if named and not kinds and not start.startswith(SQLITE_MAGIC[:6]):
        raise TraceFormatError(
            f"it is named {path.suffix} but is not a {named} archive "
            f"(it starts with {_shown(start)})",
            "copy or download the file again",
        )
    return kinds[0] if kinds else None


def _named(path: Path) -> str | None:
    return _SUFFIXES.get(path.suffix.lower())


def _unpack(path: Path, archive: str, plain: Path, stored: int) -> None:
    """Unpack an archive; `stored` is the size of its content, 0 if unknown."""
    try:
        with plain.open("wb") as target, path.open("rb") as packed:
            size, unpacked_size = path.stat().st_size, 0
            for piece in archives.unpacked_pieces(packed, archive):
                stage("Unpacking the trace", packed.tell(), size)
                unpacked_size += len(piece)
                if 0 < stored < unpacked_size:
                    raise TraceFormatError(
                        f"the {archive} archive unpacks to more than the {stored:,} bytes that the "
                        "SQLite file in it has by its header",
                        "copy or compress the file again",
                    )
                target.write(piece)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _no_space(plain) from error
    except archives.damage(archive) as error:
        raise _damaged(archive, error) from error


def _no_space(plain: Path) -> TraceFormatError:
    return TraceFormatError(
        f"there is no space left to unpack it into {plain.parent.parent}",
        "free some, or set TMPDIR to another folder",
    )


def _damaged(archive: str | None, error: Exception) -> TraceFormatError:
    return TraceFormatError(
        f"the {archive} archive is damaged or truncated ({error})",
        "copy or download the file again",
    )


def _stored_size(header: bytes) -> int:
    """File size in bytes according to the SQLite header, 0 if it does not tell."""
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    # Programs older than SQLite 3.7 leave a stale page count, which differing counters reveal.
    current = len(header) == SQLITE_HEADER_BYTES and header[24:28] == header[92:96]
    return (65536 if page == 1 else page) * pages * current


def _other_kind(name: str, start: bytes) -> TraceFormatError:
    if name.endswith(REPORT_SUFFIXES):
        return TraceFormatError(
            "it is an Nsight Systems report, which must be exported first",
            "export it with: nsys export --type sqlite FILE.nsys-rep",
        )
    if start.removeprefix(_BOM).lstrip()[:1] in (b"{", b"["):
        return TraceFormatError("it is JSON, and this needs an SQLite file", USE_EXPORT)
    known = foreign.of_start(name, start)
    return known or TraceFormatError(
        f"it is not an SQLite file, nor JSON (it starts with {_shown(start[:16])})", USE_TRACE
    )


def _shown(start: bytes) -> str:
    """Bytes as text in quotes, with escapes for what cannot be shown."""
    return repr(start).removeprefix("b")


USE_RECORDINGS = "pass files, or a folder with .sqlite, .nsys-rep or .json files"
_NAMED = (*TRACE_SUFFIXES, ".json")
"""Endings of the names of recordings, before a compression suffix."""


def recordings_in(folder: Path) -> list[Path]:
    """The recordings directly in a folder, sorted by name, without reports that have an export."""
    plain = {file: Path(unpacked_name(file)) for file in sorted(folder.iterdir()) if file.is_file()}
    plain = {file: name for file, name in plain.items() if name.name.endswith(_NAMED)}
    exports = {name.stem for name in plain.values() if name.suffix == ".sqlite"}
    whole = (".sqlite", ".json")
    return [f for f, name in plain.items() if name.suffix in whole or name.stem not in exports]

"""Open a trace file of any supported kind."""

from __future__ import annotations

import gzip
import lzma
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traceview.errors import TraceFormatError
from traceview.trace.memory.requirement import check_fits
from traceview.trace.model import Trace
from traceview.trace.nsys import reader as nsys
from traceview.trace.sqlite import file as sqlite_file

SQLITE_MAGIC = b"SQLite format 3\x00"
WANTED = (
    "pass an nsys SQLite export, as `traceview record` or `nsys export --type sqlite` writes it"
)
SQLITE_HEADER_BYTES = 100
PIECE_BYTES = 1 << 20
_ARCHIVES = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_REPORTS = (".nsys-rep", ".qdrep")
_SUFFIXES = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}


def load(path: str | Path) -> Trace:
    """Read a trace: an nsys SQLite export, also inside a .gz, .xz or .zst file.

    The file is never written to, nor is anything beside it. Raises TraceFormatError if there is
    no such file, if it cannot be read, or if it is not such an export; TooLargeError if there is
    too little memory for a report of it.
    """
    shown = str(path).encode("utf-8", "replace").decode()
    with (
        _naming(shown),
        unpacked(Path(path)) as plain,
        sqlite_file.opened(plain) as database,
    ):
        check_fits(database, shown)
        return nsys.read(database, shown)


def is_report(path: Path) -> bool:
    """Is it, by its name, a report that nsys has to export first? It may be an archive of one."""
    name = path.name.lower()
    return name.removesuffix(path.suffix.lower() if _named(path) else "").endswith(_REPORTS)


def is_trace(path: Path) -> bool:
    """Is it a file that is named like a trace, or one of SQLite whatever its name?"""
    if not path.is_file():
        return False
    name = path.name.lower()
    plain = name.removesuffix(path.suffix.lower()) if _named(path) else name
    if plain.endswith((".sqlite", ".json", *_REPORTS)):
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        # Whoever reads it next says why it cannot be read.
        return False


@contextmanager
def unpacked_report(path: Path) -> Iterator[Path]:
    """A path to the plain report, for as long as the block runs. Raises TraceFormatError."""
    with _naming(str(path)), _plain(path) as plain:
        yield plain


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A path to the plain SQLite file, for as long as the block runs."""
    with _plain(path) as plain:
        _check_sqlite(plain, path.name if plain == path else path.stem)
        yield plain


@contextmanager
def _naming(shown: str) -> Iterator[None]:
    """Let the errors of the block say which file they speak of."""
    try:
        yield
    except TraceFormatError as error:
        raise TraceFormatError(f"cannot read {shown}: {error.what}", error.remedy) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceFormatError(f"cannot read {shown}: {reason}", "check the path") from error


@contextmanager
def _plain(path: Path) -> Iterator[Path]:
    """The file itself, or what the archive holds, in a temporary folder."""
    archive = _archive(path)
    if archive is None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        plain = Path(folder, path.stem)
        _unpack(path, archive, plain)
        yield plain


def _archive(path: Path) -> str | None:
    if path.is_dir():
        raise TraceFormatError("it is a folder", "pass the trace file itself")
    with path.open("rb") as file:
        start = file.read(6)
    if not start:
        raise TraceFormatError("the file is empty", WANTED)
    found = [name for magic, name in _ARCHIVES.items() if start.startswith(magic)]
    named = _named(path)
    if named and not found and not start.startswith(SQLITE_MAGIC[:6]):
        raise TraceFormatError(
            f"it is named {path.suffix} and is no {named} archive (it begins with {start!r})",
            "copy or download the file again",
        )
    return found[0] if found else None


def _named(path: Path) -> str | None:
    return _SUFFIXES.get(path.suffix.lower())


def _unpack(path: Path, archive: str, plain: Path) -> None:
    try:
        with plain.open("wb") as target:
            for piece in _pieces(path, archive):
                target.write(piece)
    except _damage(archive) as error:
        raise TraceFormatError(
            f"the {archive} archive is damaged or cut short ({error})",
            "copy or download the file again",
        ) from error


def _pieces(path: Path, archive: str) -> Iterator[bytes]:
    if archive == "zstd":
        yield from _zstd_pieces(path)
        return
    module = gzip if archive == "gzip" else lzma
    with module.open(path, "rb") as source:
        while piece := source.read(PIECE_BYTES):
            yield piece


def _zstd_pieces(path: Path) -> Iterator[bytes]:
    # zstandard's own file reader ends quietly where a frame is cut short; this one tells.
    decompressor = _zstandard().ZstdDecompressor()
    frame = None
    with path.open("rb") as source:
        while packed := source.read(PIECE_BYTES):
            while packed:
                frame = frame or decompressor.decompressobj()
                yield frame.decompress(packed)
                packed, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("the last frame has no end")


def _damage(archive: str) -> tuple[type[Exception], ...]:
    errors: tuple[type[Exception], ...] = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
    return (*errors, _zstandard().ZstdError) if archive == "zstd" else errors


def _zstandard() -> Any:
    # Imported only for the archives that need it: reading a plain trace has to start fast.
    import zstandard

    return zstandard


def _check_sqlite(path: Path, name: str) -> None:
    with path.open("rb") as file:
        start = file.read(SQLITE_HEADER_BYTES)
    if not start.startswith(SQLITE_MAGIC):
        raise _other_kind(name.lower(), start)
    stored, size = _stored_size(start), path.stat().st_size
    if size < stored and not sqlite_file.has_log(path):
        raise TraceFormatError(
            f"the SQLite file is cut short (its header says {stored} bytes, it has {size})",
            "copy or export the file again",
        )


def _stored_size(header: bytes) -> int:
    """The size in bytes that an SQLite header tells; at least a whole header."""
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    # Programs older than SQLite 3.7 leave the number of pages behind, and say so here.
    current = header[24:28] == header[92:96]
    return max(SQLITE_HEADER_BYTES, (65536 if page == 1 else page) * pages * current)


def _other_kind(name: str, start: bytes) -> TraceFormatError:
    if name.endswith(_REPORTS):
        return TraceFormatError(
            "it is an Nsight Systems report, not yet an export",
            "export it with: nsys export --type sqlite FILE.nsys-rep",
        )
    if name.endswith(".json") or start.lstrip()[:1] in (b"{", b"["):
        return TraceFormatError("it is JSON; this version reads nsys exports only", WANTED)
    return TraceFormatError(f"it is not an SQLite file (it begins with {start[:16]!r})", WANTED)

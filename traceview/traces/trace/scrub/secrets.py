"""Private texts found in bytes and in code, and paths without the folders that tell of a user."""

from __future__ import annotations

import re
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from traceview.base.records import record
from traceview.traces.trace.scrub import kept
from traceview.traces.trace.scrub.kept import PAIRS, STRINGS, TextKind
from traceview.traces.trace.sqlite.row_reader import quoted

REMOVED = b"(removed)"
HOME = b"~"
_SHORTEST_SECRET = 8
_NAME_END = rb"""[^\\/\0:;,"'`<>|()\s]+"""
_HOMES = re.compile(
    rb"/(?:home|Users)/" + _NAME_END + rb"|(?<![\w.~/-])/root(?![\w.-])"
    rb"|\b[A-Za-z]:(?:\\\\?|/)Users(?:\\\\?|/)" + _NAME_END
)
_VARIABLE = re.compile(rb"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
# Values too common to be secrets: numbers, versions, paths, plain words.
_ORDINARY = re.compile(
    rb"[\d.,:x-]*|[/~.].*|[A-Za-z]+|(?i:nvidia|cuda|x86_64|linux|C\.UTF)[\w. -]*"
)
_HOME_VARIABLES = (b"HOME", b"USERPROFILE")


# Names of facts whose values are an environment, or name a host or user.
_ENVIRONMENT = re.compile(rb"ENVIRONMENT", re.IGNORECASE)
_HOST_OR_USER = re.compile(rb"HOST|USER|DISPLAY_NAME", re.IGNORECASE)


def found_in(source: sqlite3.Connection, environment: Mapping[bytes, bytes]) -> PrivateTexts:
    """The private texts in the database `source`, and those of the environment.

    The texts of the connection must be bytes.
    """
    variables_found: set[tuple[bytes, bytes]] = set(environment.items())
    names: set[bytes] = set()
    for table in PAIRS:
        for name, value in _texts(source, table, "name", "value"):
            if _ENVIRONMENT.search(name):
                variables_found.update(variables(value))
            elif _HOST_OR_USER.search(name):
                names.add(value)
    for table in STRINGS:
        for (text,) in _texts(source, table, "value"):
            if is_environment(text):
                variables_found.update(variables(text))
    return PrivateTexts.of(variables_found, names)


def _texts(source: sqlite3.Connection, table: str, *columns: str) -> Iterator[tuple[bytes, ...]]:
    """The rows of a table with texts in all of these columns; none if it is missing."""
    listed = source.execute(f"PRAGMA source.table_info({quoted(table)})").fetchall()
    if {column.encode() for column in columns} <= {row[1] for row in listed}:
        rows = source.execute(f"SELECT {', '.join(columns)} FROM source.{quoted(table)}")  # noqa: S608
        yield from (row for row in rows.fetchall() if all(isinstance(v, bytes) for v in row))


def variables(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(name, value) pairs of an environment, whose entries end with NUL or else `;`.

    An entry without a name belongs to a value that contains the separator; its name is empty.
    """
    for entry in text.split(b"\0" if b"\0" in text else b";"):
        match = _VARIABLE.fullmatch(entry)
        if match:
            value = match[2]
            yield match[1], value[1:-1] if value[:1] == value[-1:] == b'"' else value
        elif entry:
            yield b"", entry


def is_environment(text: bytes) -> bool:
    """Whether a text is an environment block: entries that end with NUL."""
    return b"\0" in text and any(name for name, _ in variables(text))


@record
class PrivateTexts:
    """Texts to replace wherever they occur: values of variables, and home folders."""

    secrets: re.Pattern[bytes] | None
    homes: re.Pattern[bytes] | None

    @classmethod
    def of(cls, found: Iterable[tuple[bytes, bytes]], names: Iterable[bytes] = ()) -> PrivateTexts:
        """The private texts among the variables (`found`) and the host and user names (`names`)."""
        pairs = set(found)
        homes = {v.rstrip(b"/") for n, v in pairs if n in _HOME_VARIABLES and v.count(b"/") > 1}
        secrets = {value for _, value in pairs if not _ORDINARY.fullmatch(value)} | set(names)
        long = {value for value in secrets if len(value) >= _SHORTEST_SECRET}
        return cls(_any_of(long - {REMOVED}), _any_of(homes, rb"(?![\w.-])"))

    def cleaned(self, text: bytes) -> bytes:
        """The text with secrets removed and home folders shortened to `~`."""
        text = self.shortened(text)
        return self.secrets.sub(REMOVED, text) if self.secrets else text

    def shortened(self, text: bytes) -> bytes:
        """The text with home folders shortened to `~`."""
        return shorten_homes(self.homes.sub(HOME, text) if self.homes else text)

    def quoted(self, text: bytes) -> bytes:
        """The scrubbed text of PTX, of any length."""
        return self.overwritten(self.shortened(text))

    def overwritten(self, text: bytes) -> bytes:
        """The scrubbed text in the same length: home folders become `~` and slashes."""
        for homes in (self.homes, _HOMES):
            if homes:
                text = homes.sub(lambda home: HOME.ljust(len(home[0]), b"/"), text)
        secrets = self.secrets
        return secrets.sub(lambda secret: b"_" * len(secret[0]), text) if secrets else text


def shorten_homes(text: bytes) -> bytes:
    """Shorten /home/NAME, /root, /Users/NAME and C:\\Users\\NAME to `~`."""
    return _HOMES.sub(HOME, text)


def _any_of(values: Iterable[bytes], then: bytes = b"") -> re.Pattern[bytes] | None:
    # Longest first: one value may be a prefix of another.
    listed = sorted(values, key=lambda value: (-len(value), value))
    return re.compile(b"(?:" + b"|".join(map(re.escape, listed)) + b")" + then) if listed else None


ELIDED = "…"
_PACKAGES_LISTED = """
accelerate apex cuda cudf cuml cupy cupyx cutlass deepspeed einops flash_attn flax jax jaxlib
keras lightning lightning_fabric matplotlib megatron networkx numba numpy nvidia nvtx optax pandas
PIL pytorch_lightning ray safetensors scipy sklearn tensorflow tokenizers torch torch_geometric
torch_xla torchaudio torchgen torchvision tqdm transformer_engine transformers triton vllm
xformers
"""
_PACKAGES = frozenset(_PACKAGES_LISTED.split())
"""Packages whose files are named with their folders, as analyses know some of them."""
_INSTALLED = re.compile(r"(?:^|/)((?:site|dist)-packages)/(?:([^/]+)/)?")
_STANDARD = re.compile(r"/(lib(?:64)?/python[\d.]+t?(?:\.zip)?)/(?:([\w]+/)*)([\w.]+)$")
_TORCH = re.compile(r"(?:^|/)(torch/(?:nn|optim|autograd|utils|cuda|_\w+)/[\w./]+)$")
_GENERATED = re.compile(r"/(torchinductor_)[^/]*/|/(traceview_injected)/")
_FILE = re.compile(r"[\w.<>+() -]*[\w>)]\.(?:py[xi]?|cuh?|cc|cpp|cxx|c|hpp|h|inc|inl|mojo|jl)")
_LIBRARY = re.compile(r"[\w.+-]+?\.(?:so|pyd|dylib|dll|exe)(?:\.[\d.]+)?")
_NAMED = re.compile(
    r"\[[A-Z][\w ]{1,20}\]|\[vdso\]|\(unnamed\)|<(?:string|stdin|unknown|frozen [\w.]{1,60}"
    r"|eval_with_key>?[.\d]*|__array_function__ internals)>?|\(removed\)|"
)
_SHORT = re.compile(rf"{ELIDED}/(?:\d+/)?(?=[^/]+$)")
_MODULE_ROOT = re.compile(r"/(?:usr|lib\w*|opt|nix|snap)/")


def public_tail(path: str) -> str | None:
    """The end of a path that tells nothing of its user; None if even its last part may.

    A path outside of known packages keeps its file name only.
    """
    if _NAMED.fullmatch(path):
        return path
    path = path.replace("\\", "/")
    name = path.rpartition("/")[2]
    if installed := _INSTALLED.search(path):
        known = installed[2] in _PACKAGES or (not installed[2] and name[:-3] in _PACKAGES)
        return path[installed.start(1) :] if known else _named(installed[1], name)
    if torch := _TORCH.search(path):
        return torch[1]
    if standard := _STANDARD.search(path):
        return f"{standard[1]}/{standard[3]}"
    if generated := _GENERATED.search(path):
        return _named(generated[1] or generated[2], name)
    return name if _FILE.fullmatch(name) else None


def _named(folder: str, name: str) -> str | None:
    return f"{folder}/{name}" if _FILE.fullmatch(name) else None


class SourcePaths:
    """Short paths of source files; files of the same name in different folders stay apart."""

    def __init__(self) -> None:
        self._short: dict[str, str | None] = {}
        self._taken: set[str] = set()

    def short(self, path: str) -> str | None:
        """`…/` and the public end of a path; `…/2/` for a second file with that end."""
        if path not in self._short:
            self._short[path] = self._new(path)
        return self._short[path]

    def _new(self, path: str) -> str | None:
        if _SHORT.match(path):
            self._taken.add(path)
            return path
        tail = public_tail(path)
        if tail is None or tail == path:
            return tail
        short, number = f"{ELIDED}/{tail}", 1
        while short in self._taken:
            number += 1
            short = f"{ELIDED}/{number}/{tail}"
        self._taken.add(short)
        return short


def short_module(path: str, is_public: bool) -> str | None:
    """The file name of an executable or library, below `/usr/…` if the system installed it."""
    if _NAMED.fullmatch(path):
        return path
    name = path.rpartition("/")[2]
    if not (is_public or _LIBRARY.fullmatch(name)):
        return None
    if name == path:
        return path
    installed = _INSTALLED.search(path)
    if installed:
        return f"{ELIDED}/{installed[1]}/{name}"
    root = _MODULE_ROOT.match(path)
    return f"{root[0]}{ELIDED}/{name}" if root else f"{ELIDED}/{name}"


# Remove private texts from PTX and cubins, in place.
#
# Texts are overwritten with the same length, so that offsets in debug information stay valid and
# a cubin stays a valid ELF file. A folder becomes `~` and as many slashes as needed; the SASS
# reader collapses them, so that paths in PTX and SASS stay equal.

# File names and comments; the code itself contains nothing private.
_QUOTED_OR_REMARK = re.compile(rb'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
# Texts written as byte values: debug information, and arrays such as an assertion's file name.
_SPELT = re.compile(rb"(?:^[ \t]*\.b8[ \t][^\n;{]*\n)+|\.b8[^;{}\n]*=\s*\{[^}]*\}", re.MULTILINE)
_VALUES = re.compile(rb"//[^\n]*|\w+(?=\s*[\[=])|(?<![\w.])\d{1,3}(?!\w)")

_ELF64 = b"\x7fELF\x02\x01"
_FILE_HEADER = struct.Struct("<40xQ10xHHH")
_SECTION = struct.Struct("<IIQ8xQQ24x")
_PROGBITS, _NOBITS, _NOTE = 1, 8, 7
_EXECUTABLE = 4
_LINE_TABLES = (b".debug_line\0", b".nv_debug_line_sass\0")
_LINE_HEADER = struct.Struct("<IHI")
# Shorter ones occur in binary data by chance.
_SHORTEST_TEXT = 5
_RUN = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]{%d,}(?=\0|\Z)" % _SHORTEST_TEXT)
_PLACE = re.compile(rb"@\[|\]|[^\s@\[\]\"]+:\d{1,9}(?::\d{1,9})?(?=[\s\]]|$)")
_LINE_NUMBERS = re.compile(rb"(?::\d{1,9}){1,2}$")
_ASSEMBLY = (b"// begin inline asm", b"// end inline asm")
_FUNCTION = re.compile(rb"\.(?:entry|func)\b(?:\s*\([^)]*\))?\s*([\w$]+)")


class Policy(Protocol):
    """What is left of the texts in code."""

    def quoted(self, text: bytes) -> bytes:
        """A text in quotes or a comment of PTX, of any length."""

    def overwritten(self, text: bytes) -> bytes:
        """Bytes of debug information and constants, in the same length."""


class PublicTexts:
    """Keeps the ends of paths, public words, and the names of the functions in the code."""

    def __init__(self, functions: frozenset[bytes] = frozenset()) -> None:
        self._functions = functions

    @classmethod
    def of(cls, ptx: bytes) -> PublicTexts:
        """For the code of this PTX."""
        return cls(frozenset(_FUNCTION.findall(ptx)))

    def quoted(self, text: bytes) -> bytes:
        """A text in quotes or a comment; of comments, only source lines and inline assembly."""
        if text.startswith(b'"'):
            return b'"%s"' % self._text(text[1:-1])
        if text.strip() in _ASSEMBLY:
            return text
        if text.startswith(b"/*"):
            return b"/**/"
        return b"//" + b"".join(_places(text[2:]))

    def overwritten(self, text: bytes) -> bytes:
        """Bytes with each text that ends in NUL reduced, in the same length."""
        return _RUN.sub(lambda run: self._text(run[0]), text)

    def _text(self, text: bytes) -> bytes:
        plain = text.decode() if text.isascii() else ""
        if text in self._functions or (plain and kept.is_public(plain)):
            return text
        # The public end of a folder of installed files, or of a file.
        below = public_tail(f"{plain}/_.py") or ""
        folder = below.removesuffix("/_.py") if below.count("/") > 1 else ""
        tail = (folder or public_tail(plain) or "").encode()
        if not tail:
            return (HOME if b"/" in text else b"").ljust(len(text), b"/" if b"/" in text else b"_")
        size = len(text)
        head = size - len(tail)
        return (HOME.ljust(head, b"/") if head > 1 else b"/" * head) + tail


def _places(remark: bytes) -> Iterator[bytes]:
    """The `FILE:LINE:COLUMN @[ … ]` of a comment behind a `.loc`, with public files alone."""
    for mark in _PLACE.findall(remark):
        if mark in (b"@[", b"]"):
            yield b" " + mark
        else:
            numbers = _LINE_NUMBERS.search(mark)
            assert numbers
            tail = public_tail(mark[: numbers.start()].decode("ascii", "replace"))
            yield b" " + (tail or "unknown").encode() + numbers[0]


def clean_ptx(ptx: bytes, texts: Policy) -> bytes:
    """PTX without private texts in file names, comments and debug information."""
    ptx = _QUOTED_OR_REMARK.sub(lambda text: texts.quoted(text[0]), ptx)
    return _SPELT.sub(lambda found: _respelt(found[0], texts), ptx)


def clean_cubin(cubin: bytes, texts: Policy) -> bytes | None:
    """A cubin without private texts outside its code and symbols; None if it is not ELF."""
    cleaned = bytearray(cubin)
    try:
        for start, end in _text_places(cubin):
            cleaned[start:end] = texts.overwritten(cubin[start:end])
    except (struct.error, ValueError):
        return None
    return bytes(cleaned)


CLEAN: Mapping[TextKind, Callable[[bytes, Policy], bytes | None]] = {
    TextKind.PTX: clean_ptx,
    TextKind.CUBIN: clean_cubin,
}


def _respelt(text: bytes, texts: Policy) -> bytes:
    """A list of byte values, with those that spell a private text replaced."""
    places = [match for match in _VALUES.finditer(text) if match[0][:1].isdigit()]
    spelt = bytes(min(int(place[0]), 255) for place in places)
    cleaned = texts.overwritten(spelt)
    if cleaned == spelt:
        return text
    pieces, after = [], 0
    for place, old, new in zip(places, spelt, cleaned, strict=True):
        if old != new:
            pieces += [text[after : place.start()], b"%d" % new]
            after = place.end()
    return b"".join((*pieces, text[after:]))


def _text_places(elf: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of what may hold private texts: debug information, constants, unused bytes."""
    if not elf.startswith(_ELF64):
        raise ValueError("not a cubin")
    table, entry, count, names = _FILE_HEADER.unpack_from(elf)
    sections = [_SECTION.unpack_from(elf, table + index * entry) for index in range(count)]
    for name, kind, flags, start, size in sections:
        if kind in (_PROGBITS, _NOTE) and not flags & _EXECUTABLE:
            if start + size > len(elf):
                raise ValueError("a section beyond the end")
            if elf[sections[names][3] + name :][:24].startswith(_LINE_TABLES):
                yield from _line_headers(elf, start, start + size)
            else:
                yield start, start + size
    ends = (start + size for _, kind, _, start, size in sections if kind != _NOBITS)
    yield max((table + count * entry, *ends)), len(elf)


def _line_headers(elf: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(start, end) of the headers of a line table, which name its files.

    The programs behind them are binary, and by chance look like text.
    """
    while start + _LINE_HEADER.size <= end:
        size, _, header = _LINE_HEADER.unpack_from(elf, start)
        stop = start + _LINE_HEADER.size + header
        if not size or stop > end:
            raise ValueError("a line table beyond its section")
        yield start + _LINE_HEADER.size, stop
        start += 4 + size

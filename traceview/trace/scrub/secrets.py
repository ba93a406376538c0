"""Find private texts in bytes: home folders and values of environment variables."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping

from traceview.records import record
from traceview.trace.scrub.kept import PAIRS, STRINGS
from traceview.trace.sqlite.row_reader import quoted

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

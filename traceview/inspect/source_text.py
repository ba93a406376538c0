"""The user's source around the lines that a kernel's accesses come from."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from traceview import units
from traceview.ptx.model import SourceLine
from traceview.records import record

_AROUND = 3
_MOST_BYTES = 4_000_000
_FAR_APART = 400


@record
class Excerpt:
    """Lines of one file, numbered; `missing` says why there are none."""

    file: str
    lines: tuple[tuple[int, str], ...]
    missing: str | None = None


def excerpts(
    sources: Iterable[SourceLine], texts: Mapping[str, str] | None = None
) -> list[Excerpt]:
    """One excerpt per file, with all these lines and a few around them.

    `texts` has the text of files that no longer exist. A file that cannot be read, is shorter than
    when it was compiled, or is too large has no lines, but a reason.
    """
    by_file: dict[str, set[int]] = {}
    for source in sources:
        by_file.setdefault(source.file, set()).add(source.line)
    listed = []
    for file, numbers in sorted(by_file.items()):
        try:
            stored = (texts or {}).get(file)
            text = (_read(Path(file)) if stored is None else stored).splitlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            listed.append(Excerpt(file, (), f"cannot be read: {reason}"))
            continue
        if max(numbers) > len(text):
            count = units.counted(len(text), "line")
            why = f"has only {count}: it changed since it was compiled"
            listed.append(Excerpt(file, (), why))
            continue
        ordered, shown = sorted(numbers), set[int]()
        for number, following in zip(ordered, (*ordered[1:], ordered[-1]), strict=True):
            # A few lines around, and all up to the next unless that is far.
            end = following if following - number <= _FAR_APART else number
            shown.update(range(max(1, number - _AROUND), min(len(text), end + _AROUND) + 1))
        listed.append(Excerpt(file, tuple((n, text[n - 1]) for n in sorted(shown))))
    return listed


def _read(path: Path) -> str:
    """The text of a source file. Raises OSError, or ValueError if it cannot be shown."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        # Code names any file it likes: a device may have no end, a pipe no writer.
        raise ValueError("it is not a regular file")
    if status.st_size > _MOST_BYTES:
        raise ValueError("it is too large to show")
    return path.read_text("utf-8", "replace")

"""Mutants of recordings and code: damage of bytes, of the format's own numbers, and of values."""

import json
import lzma
import random
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.places import DATA, PTX_FILES

Mutant = Callable[[random.Random, Path], list[str]]
_EXPORTS = ("simple_streams", "radix_sort", "jacobi_0")
_WORDS = (b"\0", b"\xff", b"\x80" * 9, b"\xff" * 9, b"\x7f" * 4, b"\0" * 8)
_VALUES = (None, 0, -1, 1 << 62, -(1 << 62), 1e300, "text", b"\xff\0", "\x1b[31m")


def unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def bytes_changed(content: bytes, chance: random.Random, places: Sequence[int] = ()) -> bytes:
    """Bits flipped, pieces cut out, repeated, moved or overwritten, or the end cut off."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.choice(places) if places else chance.randrange(max(len(changed), 1))
        size = chance.randrange(1, 64)
        how = chance.randrange(6)
        if how == 0 or not changed:
            at = min(at, len(changed) - 1)
            changed[at:] = bytes([changed[at] ^ 1 << chance.randrange(8)]) + changed[at + 1 :]
        elif how == 1:
            word = chance.choice(_WORDS)
            changed[at : at + len(word)] = word
        elif how == 2 and not places:
            del changed[at : at + size]
        elif how == 3 and not places:
            changed[at:at] = changed[at : at + size]
        elif how == 4:
            other = chance.randrange(len(changed))
            changed[at : at + size] = changed[other : other + size]
        elif chance.random() < 0.1:
            del changed[max(at, 1) :]
    return bytes(changed)


def sqlite_mutant(chance: random.Random, folder: Path) -> list[str]:
    """An export with damaged pages, cells or values; the arguments that report it."""
    path = folder / "mutant.sqlite"
    source = DATA / "foreign" / f"{chance.choice(_EXPORTS)}.sqlite.xz"
    path.write_bytes(unpacked(source))
    if chance.random() < 0.4:
        _change_values(path, chance)
    else:
        content = path.read_bytes()
        path.write_bytes(bytes_changed(content, chance, _places(content, chance)))
    return ["report", str(path), "--json", "-"]


def _places(content: bytes, chance: random.Random) -> list[int]:
    """Offsets in the header of the file, of a page, or in its cell pointers and cells."""
    size = int.from_bytes(content[16:18], "big")
    size = 65536 if size == 1 else size
    start = chance.randrange(len(content) // size) * size
    at = start + (100 if start == 0 else 0)
    cells = int.from_bytes(content[at + 3 : at + 5], "big")
    kind = chance.randrange(4)
    if kind == 0:
        return list(range(100))
    if kind == 1 or not cells:
        return list(range(at, at + 12))
    pointer = at + (12 if content[at] == 5 else 8) + 2 * chance.randrange(cells)
    if kind == 2:
        return [pointer, pointer + 1]
    cell = start + int.from_bytes(content[pointer : pointer + 2], "big")
    return [min(cell + n, len(content) - 1) for n in range(24)]


def _change_values(path: Path, chance: random.Random) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for _ in range(chance.choice((1, 2, 5))):
        table = chance.choice(tables)[0]
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        column, some = chance.choice(columns), f"rowid % {chance.choice((1, 2, 7, 50))} = 0"
        change, values = chance.choice(
            (
                (f'UPDATE "{table}" SET "{column}" = ? WHERE {some}', [chance.choice(_VALUES)]),
                (f'DELETE FROM "{table}" WHERE {some}', []),
                (f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE {some}', []),
                (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO gone', []),
            )
        )
        try:
            database.execute(change, values)
        except sqlite3.Error:
            # A constraint of this table: the next change is another one.
            continue
    database.close()


def json_mutant(chance: random.Random, folder: Path) -> list[str]:
    """A trace of torch.profiler with damaged text or values; the arguments that report it."""
    path = folder / "mutant.json"
    content = unpacked(chance.choice(sorted((DATA / "torch").glob("*.json.xz"))))
    if chance.random() < 0.5:
        document = json.loads(content)
        for _ in range(chance.choice((1, 3, 20))):
            event = chance.choice(document["traceEvents"])
            key = chance.choice(sorted(event))
            event[key] = chance.choice(
                (None, -1, 1e300, 1 << 80, "x", [], {}, True, event.get("ts"))
            )
        content = json.dumps(document).encode()
    else:
        content = bytes_changed(content, chance)
    path.write_bytes(content)
    return ["report", str(path), "--json", "-"]


def code_mutant(chance: random.Random, folder: Path) -> list[str]:
    """PTX, a cubin or counters with damage; the arguments that inspect or report it."""
    kind = chance.choice(("ptx", "ptx", "ptx", "cubin", "ncu"))
    if kind == "ptx":
        path = folder / "mutant.ptx"
        content = unpacked(chance.choice(sorted(PTX_FILES.glob("*.ptx"))))
        path.write_bytes(_tokens_changed(content, chance))
    elif kind == "cubin":
        path = folder / "mutant.cubin"
        content = unpacked(DATA / "producers" / "cutile-1.7.0-sm90.cubin")
        path.write_bytes(bytes_changed(content, chance))
    else:
        path = folder / "mutant.ncu-rep"
        path.write_bytes(bytes_changed(unpacked(DATA / "launches.ncu-rep.xz"), chance))
        recording = folder / "launches.sqlite"
        recording.write_bytes(unpacked(DATA / "launches.sqlite.xz"))
        only = ("--only", "roofline", "--json", "-")
        return ["report", str(recording), "--ncu", str(path), *only]
    return ["ptx", str(path)]


def _tokens_changed(content: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.4:
        return bytes_changed(content, chance)
    words = content.split(b" ")
    for _ in range(chance.choice((1, 3, 10))):
        at, other = chance.randrange(len(words)), chance.randrange(len(words))
        words[at : at + 1] = chance.choice(([], [words[at]] * 2, [words[other]], [b"\xff{;"]))
    return b" ".join(words)


MUTANTS: dict[str, Mutant] = {"sqlite": sqlite_mutant, "json": json_mutant, "code": code_mutant}

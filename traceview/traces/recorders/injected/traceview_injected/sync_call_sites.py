"""The source line that made a call, as one short text.

This is the innermost frame of the user's own code: outside the standard library, installed
packages, torch, and this folder. Without one, as on threads of torch, the innermost frame of
another package is used.
"""

from __future__ import annotations

import os
import sys

from . import site_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any

SOURCE_CHARACTERS = 120
NAME_CHARACTERS = 200
# Bounds the caches of programs that keep generating code.
MOST_KNOWN = 50_000
NO_SOURCE = "TRACEVIEW_NO_SOURCE_LINES"
USER, PACKAGE, FRAMEWORK, OURS = range(4)
_INSTALLED = ("/site-packages/", "/dist-packages/")
_GENERATED = ("<frozen", "<eval_with_key", "<torch", "<__array", "<attrs", "<decorator")
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + "/"
_START_FOLDER = os.getcwd()

keeps_source = os.environ.get(NO_SOURCE) != "1"

# Keyed by id of code objects, which are kept alive: hashing one takes longer than a mark.
_ranks: dict[int, tuple[CodeType, int]] = {}
_texts: dict[tuple[int, int, str], str] = {}


def place(hint: str, frame: FrameType | None) -> str:
    """`train.py:31 in step: loss.item() [Tensor.item]` for a call to `hint` from `frame`."""
    if frame is None:
        return f"(unknown):0 in (unknown):  [{hint}]"
    best = innermost(frame)
    key = (id(best.f_code), best.f_lineno, hint)
    text = _texts.get(key)
    if text is None:
        text = _texts[key] = _described(best, hint)
    return text


def innermost(frame: FrameType) -> FrameType:
    """The innermost frame of the user's own code from `frame` up, else of another package."""
    best, least = frame, OURS
    above: FrameType | None = frame
    while above is not None:
        known = _ranks.get(id(above.f_code))
        rank = known[1] if known is not None else _ranked(above.f_code)
        if rank < least:
            best, least = above, rank
            if rank == USER:
                break
        above = above.f_back
    return best


def _ranked(code: CodeType) -> int:
    if len(_ranks) >= MOST_KNOWN:
        _ranks.clear()
        _texts.clear()
    rank = rank_of(code.co_filename)
    _ranks[id(code)] = (code, rank)
    return rank


def rank_of(filename: str) -> int:
    """Rank of a file: USER, PACKAGE, FRAMEWORK or OURS."""
    if filename.startswith("<"):
        return FRAMEWORK if filename.startswith(_GENERATED) else USER
    path = _absolute(filename)
    if path.startswith(_OWN_FOLDER):
        return OURS
    if path.startswith(_frameworks()):
        return FRAMEWORK
    if any(folder in path for folder in _INSTALLED) or site_folders.below(path):
        return PACKAGE
    if _of_inductor(path):
        return FRAMEWORK
    return FRAMEWORK if path.startswith(_standard()) else USER


def _of_inductor(path: str) -> bool:
    """Whether torch.compile generated a file: the folder is a part of its hash, and name."""
    folder, _, name = path.rpartition("/")
    return len(name) == 55 and name.startswith("c") and folder.endswith(f"/{name[1:3]}")


def _frameworks() -> tuple[str, ...]:
    """Folders of torch and CuPy, which may be source builds in a folder of the user."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in ("torch", "cupy"))
    return tuple(os.path.dirname(file) + "/" for file in files if file)


def _standard() -> tuple[str, ...]:
    """Folders of the standard library and of the scripts that packages install."""
    named = {os.path.dirname(os.__file__), os.path.dirname(sys.executable)} - {""}
    return tuple(each + "/" for path in named for each in {path, os.path.realpath(path)})


def _absolute(filename: str) -> str:
    path = filename if os.path.isabs(filename) else os.path.join(_START_FOLDER, filename)
    return os.path.normpath(path).replace(os.sep, "/")


def _described(frame: FrameType, hint: str) -> str:
    code, line = frame.f_code, source_of(frame)
    name = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
    where = f"{bounded(shown(code.co_filename), NAME_CHARACTERS)}:{frame.f_lineno}"
    source = bounded(line, SOURCE_CHARACTERS)
    return f"{where} in {bounded(name, NAME_CHARACTERS)}: {source} [{hint}]"


def source_of(frame: Any) -> str:
    """The text of the line that a frame executes; empty if the user wants none recorded."""
    if not keeps_source:
        return ""
    # Imported late: a program may have a module named as one of those that it imports.
    import linecache

    return linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def bounded(text: str, most: int) -> str:
    """Make a text printable, single-line and at most `most` characters long."""
    plain = "".join(c if c.isprintable() else " " for c in text.encode(errors="replace").decode())
    flat = " ".join(plain.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def shown(filename: str) -> str:
    """The path to show: relative to the working folder or to the import folder."""
    if filename.startswith("<"):
        return filename
    path = _absolute(filename)
    for folder in _INSTALLED:
        if folder in path:
            return path.rpartition(folder)[2]
    if installed := site_folders.below(path):
        return installed
    bases = [base for base in map(_absolute, _bases()) if path.startswith(base + "/")]
    tellable = [base for base in bases if not _above_home(base)]
    # Prefer the working folder, then the import folder nearest to the file.
    first = [base for base in tellable if base == _absolute(_START_FOLDER)]
    for base in first or sorted(tellable, key=len, reverse=True):
        return path[len(base) + 1 :]
    return "/".join(path.split("/")[-2:]) if path.count("/") > 2 else path.rpartition("/")[2]


def _bases() -> tuple[str, ...]:
    imported = (entry for entry in sys.path if entry and isinstance(entry, str))
    return (_START_FOLDER, *imported, *(base[:-1] for base in _standard()))


def _above_home(folder: str) -> bool:
    """Whether a path relative to the folder would contain the user's name."""
    home = _absolute(os.path.expanduser("~"))
    return folder == "/" or home.startswith(folder + "/")

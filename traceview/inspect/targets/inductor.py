"""Refuse debug folders and logs of torch.compile, naming the file to pass instead."""

from __future__ import annotations

import re
from pathlib import Path

from traceview.errors import InputError

_WRITTEN_TO = re.compile(rb"\[__output_code\].* Output code written to: (\S+\.py)")
_MOST_BYTES = 1 << 24


def refuse_debug_folder(folder: Path) -> None:
    """Raise InputError if a folder holds generated graphs, as that of TORCH_COMPILE_DEBUG does."""
    graph = min(folder.rglob("output_code.py"), default=None)
    if graph:
        what = f"{folder} holds no compiled kernel, but graphs that torch.compile has generated"
        raise InputError(what, f"pass one, such as {graph}")


def refuse_log(path: Path) -> None:
    """Raise InputError if a file is what TORCH_LOGS=output_code prints."""
    if not path.is_file():
        return
    with path.open("rb") as stream:
        named = _WRITTEN_TO.search(stream.read(_MOST_BYTES))
    if named:
        what = f"{path} is a log of torch.compile"
        raise InputError(what, f"pass the file that it names: {named[1].decode(errors='replace')}")

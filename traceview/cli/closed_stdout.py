"""A stdout or stderr that the caller has closed (>&-): what is printed is lost, which is told."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


class _Nowhere(io.FileIO):
    """The null device: were the stream's number left free, the next file opened would get it."""

    def __init__(self) -> None:
        super().__init__(os.devnull, "w")
        self.has_lost = False

    def write(self, data: Any) -> int:
        self.has_lost = True
        return super().write(data)


@contextmanager
def openable() -> Iterator[None]:
    """Inside, there is a stdout and a stderr to print to, even where Python has none."""
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                raw: Any = io.BufferedWriter(_Nowhere())
                text = stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8"))
                setattr(sys, name, text)
                stack.callback(setattr, sys, name, None)
        yield


def stdout_is_closed() -> bool:
    """Whether nothing that is printed arrives."""
    return _stdout() is not None


def is_lost() -> bool:
    """Whether something was printed, and flushed, that nobody gets."""
    stdout = _stdout()
    return stdout is not None and stdout.has_lost


def _stdout() -> _Nowhere | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Nowhere) else None

"""Detect a stdout or stderr that the caller closed (>&-), so that lost output is an error."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


class _Nowhere(io.FileIO):
    """The null device, opened so that it takes the closed descriptor before another file does."""

    def __init__(self) -> None:
        super().__init__(os.devnull, "w")
        self.has_lost = False

    def write(self, data: Any) -> int:
        self.has_lost = True
        return super().write(data)


@contextmanager
def standard_streams_open() -> Iterator[None]:
    """Keep a stdout and a stderr open within the block, even where Python has none."""
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                raw: Any = io.BufferedWriter(_Nowhere())
                text = stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8"))
                setattr(sys, name, text)
                stack.callback(setattr, sys, name, None)
        yield


def stdout_is_closed() -> bool:
    """Whether stdout is closed, so that nothing printed arrives."""
    return _stdout() is not None


def is_lost() -> bool:
    """Whether flushed output was lost to a closed stdout."""
    stdout = _stdout()
    return stdout is not None and stdout.has_lost


def _stdout() -> _Nowhere | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Nowhere) else None

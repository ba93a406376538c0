"""A time limit for ptxas, which takes minutes for tiles that no one would launch."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


class PtxasLimit:
    """Limits each run of ptxas that Triton starts within `of`; there is no limit outside."""

    def __init__(self) -> None:
        self._seconds: float | None = None

    def install(self) -> None:
        """Put the limit into Triton's compiler, for good."""
        from triton.backends.nvidia import compiler

        names: Any = compiler
        names.subprocess = SimpleNamespace(**vars(subprocess) | {"run": self._run})

    @contextmanager
    def of(self, seconds: float) -> Iterator[None]:
        """Limit ptxas in this context; it then raises subprocess.TimeoutExpired."""
        before, self._seconds = self._seconds, seconds
        try:
            yield
        finally:
            self._seconds = before

    def _run(self, *arguments: Any, **keywords: Any) -> Any:
        return subprocess.run(*arguments, **{"timeout": self._seconds} | keywords)  # noqa: S603


ptxas_limit = PtxasLimit()

"""Recompile a kernel with a change, in the worker process that compiled it first.

The worker lives until the `with` block ends. A recompilation takes only Triton's compile time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from traceview.errors import TraceviewError
from traceview.headless.change import Change
from traceview.headless.client import Worker
from traceview.headless.equivalence import Equivalence
from traceview.ptx.model import Argument, Compiled

MOST_TOGETHER = 48
"""How many recompilations all kernels of a target have together."""
COMPARISONS_S = 20.0
"""Time limit of all comparisons of results of a target's kernels."""


class Recompiler:
    """Recompiles the kernels of one Python target; a context manager.

    `step` gets a line of text before each recompilation.
    """

    def __init__(self, step: Callable[[str], None] = lambda _: None) -> None:
        self._step = step
        self._worker: Worker | None = None
        self._compared_s = 0.0
        self._trials, self._lock = 0, threading.Lock()
        self.broken: TraceviewError | None = TraceviewError("no worker process is running")
        """Why nothing can be recompiled, or None."""

    def __enter__(self) -> Recompiler:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._worker:
            self._worker.close()

    def take(self, worker: Worker, broken: str | None) -> None:
        """Take over a worker that has run a script; `broken` is why it cannot recompile, if so."""
        self._worker = worker
        self.broken = TraceviewError(broken) if broken else None

    def compile(self, compiled: Compiled, change: Change) -> Compiled:
        """Recompile a kernel with a change. Raises TraceviewError if it does not compile."""
        description = change.description or "no change"
        self._count_trial()
        self._step(f"Recompiling {compiled.name} with {description}")
        arguments = changed_arguments(compiled.arguments, change)
        options = {
            "num_warps": change.num_warps,
            "num_stages": change.num_stages,
            "maxnreg": change.max_registers,
        }
        answer = self._ask(
            {
                "variant": compiled.variant,
                "arguments": [asdict(argument) for argument in arguments],
                "options": {name: value for name, value in options.items() if value is not None},
                "compare_soon": change.resizes,
            }
        )
        if "error" in answer:
            what = f"{compiled.name} does not compile with {description}: {answer['error']}"
            raise TraceviewError(what)
        return replace(
            compiled,
            ptx=Path(answer["ptx"]).read_text(),
            cubin=Path(answer["cubin"]).read_bytes(),
            stages={name: Path(path).read_text() for name, path in answer["stages"].items()},
            arguments=arguments,
            num_warps=answer["num_warps"],
            num_stages=answer["num_stages"],
            dynamic_shared_bytes=answer["shared"],
            grid=_grid(answer["grid"]) if "grid" in answer else compiled.grid,
            notes=(),
        )

    def _count_trial(self) -> None:
        """Raise TraceviewError where the kernels of the target have had all their trials."""
        self._trials += 1
        if self._trials > MOST_TOGETHER:
            raise TraceviewError(f"{MOST_TOGETHER} trials are made for all kernels of a target")

    def compare(self, compiled: Compiled, change: Change) -> Equivalence:
        """Whether the kernel computes the same with a change, as Triton's interpreter shows."""
        if self._compared_s > COMPARISONS_S:
            return Equivalence("unknown", "comparing the results of other kernels took too long")
        started = time.monotonic()
        self._step(f"Comparing the results of {compiled.name} with {change.description}")
        arguments = [asdict(each) for each in changed_arguments(compiled.arguments, change)]
        request = {"variant": compiled.variant, "arguments": arguments, "compared": True}
        try:
            return Equivalence(**self._ask(request))
        except TraceviewError as error:
            return Equivalence("unknown", error.what)
        finally:
            self._compared_s += time.monotonic() - started

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self.broken or self._worker is None:
            raise self.broken or TraceviewError("no worker process is running")
        try:
            with self._lock:
                return self._worker.ask(request)
        except (OSError, ValueError):
            self.broken = TraceviewError("the worker process has ended")
            raise self.broken from None


def _grid(numbers: Sequence[int] | None) -> tuple[int, int, int] | None:
    return (numbers[0], numbers[1], numbers[2]) if numbers else None


def changed_arguments(arguments: tuple[Argument, ...], change: Change) -> tuple[Argument, ...]:
    """The arguments with the change applied."""
    values = dict(change.constexprs)
    return tuple(
        Argument(a.name, "constexpr", value=values[a.name])
        if a.name in values
        else replace(a, divisible_by_16=a.divisible_by_16 or a.name in change.divisible)
        for a in arguments
    )

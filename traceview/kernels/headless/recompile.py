"""Recompile a kernel with a change, in the worker process that compiled it first.

The worker lives until the `with` block ends. A recompilation takes only Triton's compile time.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from traceview.base import units
from traceview.base.errors import TimeUpError, TraceviewError
from traceview.kernels.headless.client import Worker
from traceview.kernels.headless.compile_options import Change, Deadline, Equivalence
from traceview.kernels.ptx.model import Argument, Compiled

COMPARISON_S = 4.0
"""Time limit of the comparison of two results in the interpreter."""
_Trial = tuple[str | None, Change]  # a variant of a kernel, and what is changed


class Recompiler:
    """Recompiles the kernels of one Python target; a context manager.

    `step` gets a line of text before each recompilation. All kernels share the worker's deadline;
    each has an equal part of the time that those before it left.
    """

    def __init__(self, step: Callable[[str], None] = lambda _: None) -> None:
        self._step = step
        self._worker: Worker | None = None
        self._deadline, self._lock = Deadline(), threading.Lock()
        self._left_out: list[str] = []
        self._trials: dict[str, set[_Trial]] = defaultdict(set)
        self._trials_left_out: dict[str, set[_Trial]] = defaultdict(set)
        self.broken: TraceviewError | None = TraceviewError("no worker process is running")
        """Why nothing can be recompiled, or None."""

    def __enter__(self) -> Recompiler:
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker:
            self._worker.close()

    def take(self, worker: Worker, broken: str | None, left_out: Sequence[str] = ()) -> None:
        """Take over a worker that has run a script; `broken` is why it cannot recompile, if so.

        `left_out` is what it had no time for.
        """
        self._worker, self._deadline = worker, worker.deadline
        self._left_out = list(left_out)
        self.broken = TraceviewError(broken) if broken else None

    def share(self, kernels: int) -> None:
        """Give the next of `kernels` remaining kernels an equal part of the time left."""
        if self._worker:
            self._deadline = self._worker.deadline.shared(kernels)

    def allow(self, seconds: float) -> None:
        """Set a new time limit, for work after all trials."""
        if self._worker:
            self._deadline = self._worker.deadline = Deadline.after(seconds)

    @property
    def left_out(self) -> list[str]:
        """The trials that there was no time for, as text."""
        trials = [
            f"{len(missed)} of {units.counted(len(self._trials[name]), 'trial')} of {name}"
            for name, missed in self._trials_left_out.items()
        ]
        return [*self._left_out, *trials]

    def compile(
        self, compiled: Compiled, change: Change, following: Change | None = None
    ) -> Compiled:
        """Recompile a kernel with a change, and start to compile it with the `following` one.

        Raises TraceviewError if it does not compile, TimeUpError if no time is left.
        """
        self._need_time(compiled, change)
        description = change.description or "no change"
        self._step(f"Recompiling {compiled.name} with {description}")
        question = {
            "variant": compiled.variant,
            "compare_soon": change.resizes,
            "seconds": self._comparison_s,
            **_compilation(compiled, change),
        }
        if following:
            question["next"] = _compilation(compiled, following)
        answer = self._ask(question, compiled, change)
        if "error" in answer:
            what = f"{compiled.name} does not compile with {description}: {answer['error']}"
            raise TraceviewError(what)
        return replace(
            compiled,
            ptx=Path(answer["ptx"]).read_text("utf-8"),
            cubin=Path(answer["cubin"]).read_bytes(),
            stages={name: Path(path).read_text("utf-8") for name, path in answer["stages"].items()},
            arguments=changed_arguments(compiled.arguments, change),
            num_warps=answer["num_warps"],
            num_stages=answer["num_stages"],
            dynamic_shared_bytes=answer["shared"],
            grid=_grid(answer["grid"]) if "grid" in answer else compiled.grid,
            notes=(),
        )

    def _need_time(self, compiled: Compiled, change: Change) -> None:
        self._trials[compiled.name].add((compiled.variant, change))
        if self._deadline.passed:
            raise self._time_up(compiled, change)

    def _time_up(self, compiled: Compiled, change: Change) -> TimeUpError:
        self._trials_left_out[compiled.name].add((compiled.variant, change))
        return TimeUpError("the time for trials is spent")

    @property
    def _comparison_s(self) -> float:
        return min(COMPARISON_S, self._deadline.left_s)

    def compare(self, compiled: Compiled, change: Change) -> Equivalence:
        """Whether results stay the same with a change, as Triton's interpreter shows."""
        arguments = [asdict(each) for each in changed_arguments(compiled.arguments, change)]
        request = {
            "variant": compiled.variant,
            "arguments": arguments,
            "compared": True,
            "seconds": self._comparison_s,
        }
        try:
            self._need_time(compiled, change)
            self._step(f"Comparing the results of {compiled.name} with {change.description}")
            return Equivalence(**self._ask(request, compiled, change))
        except TraceviewError as error:
            return Equivalence("unknown", error.what)

    def _ask(
        self, request: Mapping[str, Any], compiled: Compiled, change: Change
    ) -> dict[str, Any]:
        if self.broken or self._worker is None:
            raise self.broken or TraceviewError("no worker process is running")
        try:
            with self._lock:
                return self._worker.ask(request)
        except (OSError, ValueError):
            if self._worker.deadline.passed:
                # The worker was stopped because of the deadline.
                raise self._time_up(compiled, change) from None
            self.broken = TraceviewError("the worker process has ended")
            raise self.broken from None


def _compilation(compiled: Compiled, change: Change) -> dict[str, Any]:
    options = {
        "num_warps": change.num_warps,
        "num_stages": change.num_stages,
        "maxnreg": change.max_registers,
    }
    arguments = changed_arguments(compiled.arguments, change)
    return {
        "arguments": [asdict(argument) for argument in arguments],
        "options": {name: value for name, value in options.items() if value is not None},
    }


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

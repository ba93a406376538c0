"""A process that holds the user's kernels and compiles them again and again, changed a little.

Importing the script is the dear part, so it is done once; a trial then costs what Triton takes to
compile. The process is started at the first trial, and ended with the `with` block.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from traceview import errors
from traceview.errors import TraceviewError
from traceview.hardware import limits_of
from traceview.ptx import python_target
from traceview.ptx.model import Argument, Compiled
from traceview.ptx.trials import Change

PATIENCE_S = 60.0
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from traceview.ptx import recompile_child; "
    "sys.path.pop(0); recompile_child.main(sys.argv[2])"
)


class Recompiler:
    """Compiles the kernels of one Python target with assumptions changed; used as a context."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._process: subprocess.Popen[str] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="traceview-")
        self.broken: TraceviewError | None = None
        """Why nothing can be recompiled, once that has shown."""

    def __enter__(self) -> Recompiler:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._process:
            self._stop(self._process)
        self._folder.cleanup()

    def compile(self, compiled: Compiled, change: Change) -> Compiled:
        """The same kernel with the change. Raises TraceviewError where that cannot be had."""
        if self.broken:
            raise self.broken
        arguments = changed_arguments(compiled.arguments, change)
        options = {
            "num_warps": change.num_warps or compiled.num_warps,
            "num_stages": change.num_stages or compiled.num_stages,
        }
        answer = self._asked(
            {
                "kernel": compiled.name,
                "file": compiled.source_file,
                "capability": limits_of(compiled.arch).compute_capability,
                "arguments": [asdict(argument) for argument in arguments],
                "options": {name: value for name, value in options.items() if value is not None},
            }
        )
        if "error" in answer:
            raise TraceviewError(f"{compiled.name} does not compile so: {answer['error']}")
        return replace(
            compiled,
            ptx=Path(answer["ptx"]).read_text(),
            cubin=Path(answer["cubin"]).read_bytes(),
            arguments=arguments,
            num_warps=answer["num_warps"],
            num_stages=answer["num_stages"],
            dynamic_shared_bytes=answer["shared"],
            notes=(),
        )

    def _asked(self, question: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process = self._process or self._started()
        # The user's module may hang; then this kernel's causes are inferred, not shown.
        timer = threading.Timer(PATIENCE_S, self._stop, [process])
        timer.start()
        try:
            return self._answer(process, json.dumps(question))
        except (OSError, ValueError):
            self.broken = TraceviewError(f"{self._target} cannot be imported to recompile it")
            raise self.broken from None
        finally:
            timer.cancel()

    @staticmethod
    def _answer(process: subprocess.Popen[str], question: str) -> dict[str, Any]:
        """Raises OSError or ValueError if the process is gone."""
        if process.stdin is None or process.stdout is None:
            raise ValueError("no pipes")
        process.stdin.write(question + "\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer

    def _started(self) -> subprocess.Popen[str]:
        found = python_target.parse_target(self._target)
        given = json.dumps({"file": found.file, "module": found.module})
        root = str(Path(errors.__file__).parents[1])
        return subprocess.Popen(  # noqa: S603 (the user asks for the script to be run)
            [python_target.python(), "-P", "-c", _START, root, given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=python_target.environment(Path(self._folder.name)),
            start_new_session=True,
        )

    @staticmethod
    def _stop(process: subprocess.Popen[str]) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()


def changed_arguments(arguments: tuple[Argument, ...], change: Change) -> tuple[Argument, ...]:
    """The arguments as the change would have them."""
    values = dict(change.constexprs)
    return tuple(
        Argument(a.name, "constexpr", value=values[a.name])
        if a.name in values
        else replace(a, divisible_by_16=a.divisible_by_16 or a.name in change.divisible)
        for a in arguments
    )

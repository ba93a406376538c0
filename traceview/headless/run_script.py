"""Run the user's file or module, and report on one line how it ended."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from traceview.errors import InputError

# LLVM, in Triton, takes SIGINT and both SIGUSR for itself, and scripts use SIGALRM.
STOP = signal.SIGVTALRM
"""The signal that interrupts a script at its time limit."""


@dataclass(frozen=True)
class Script:
    """A file or a module to run; `path` is the file of a module, `spec` its import spec."""

    path: str
    code: CodeType
    spec: Any = None

    @property
    def name(self) -> str:
        """Its name in messages: a module's name or a file's."""
        return self.spec.name if self.spec else Path(self.path).name


@dataclass(frozen=True)
class Ending:
    """The result of running a script: its globals, and how it failed, if it did.

    `missing` is a package that it failed to import. `stopped`: it was interrupted at its limit.
    """

    names: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None
    missing: str | None = None
    stopped: bool = False


class Stopped(BaseException):
    """Raised in a script to interrupt it."""


def of_file(path: str) -> Script:
    """Compile a file. Raises InputError if it cannot be read or is not Python."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return Script(path, _compiled(text, path))


def of_module(name: str) -> Script:
    """Find and compile a module, also in the current folder. Raises InputError."""
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 (a str is what sys.path holds)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.origin or not Path(spec.origin).is_file():
        remedy = "run traceview from the folder that contains it, or pass a FILE.py"
        raise InputError(f"{sys.executable} finds no module {name}", remedy)
    return Script(spec.origin, _compiled(Path(spec.origin).read_bytes(), spec.origin), spec)


def run(
    script: Script,
    *,
    as_main: bool,
    arguments: Sequence[str],
    starting: Callable[[], None] = lambda: None,
) -> Ending:
    """Run a script as Python would and catch everything; without `as_main`, as an import.

    `starting` is called right before. From then on the signal STOP interrupts the script.
    """
    module = _module(script, "__main__" if as_main else _import_name(script))
    sys.argv = [script.path, *arguments]
    if script.spec is None:
        sys.path.insert(0, str(Path(script.path).parent))
        sys.path += _package_root(script)
    try:
        with _stoppable():
            starting()
            exec(script.code, module.__dict__)  # noqa: S102 (the user asks for it)
    except Stopped:
        return Ending(module.__dict__, "was stopped", stopped=True)
    except SystemExit as end:
        failed = end.code not in (None, 0)
        return Ending(module.__dict__, f"exited with {end.code!r:.80}" if failed else None)
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        return Ending(module.__dict__, _in_words(error, script), missing)
    return Ending(module.__dict__)


def _package_root(script: Script) -> list[str]:
    """The folder of the top-level package of a file in a package, for absolute imports.

    It goes to the end of sys.path, so that it shadows nothing.
    """
    folder = Path(script.path).absolute().parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        folder = folder.parent
    return [] if folder == Path(script.path).absolute().parent else [str(folder)]


@contextmanager
def _stoppable() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped

    signal.signal(STOP, stop)
    try:
        yield
    finally:
        signal.signal(STOP, signal.SIG_IGN)


def _import_name(script: Script) -> str:
    return script.spec.name if script.spec else Path(script.path).stem


def _module(script: Script, name: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__, module.__spec__ = script.path, script.spec
    module.__package__ = script.spec.parent if script.spec else None
    sys.modules[name] = module
    return module


def _compiled(text: bytes, path: str) -> CodeType:
    try:
        return compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        place = f"{path}, line {error.lineno}" if error.lineno else path
        raise InputError(f"{place}: not valid Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: not valid Python: {error}") from None


def _in_words(error: BaseException, script: Script) -> str:
    """An exception on one line: `raised ValueError at line 12: no data`."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == script.path]
    place = f" at line {lines[-1]}" if lines else ""
    message = " ".join(str(error).split())
    return f"raised {type(error).__name__}{place}" + (f": {message[:300]}" if message else "")

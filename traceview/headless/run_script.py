"""Running the user's file or module, and saying in one line how it ended."""

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
"""Tells a process that its script has run for long enough."""


@dataclass(frozen=True)
class Script:
    """What to run: a file, or a module (then `path` is its file). `package` is for its imports."""

    path: str
    code: CodeType
    spec: Any = None

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self.spec.name if self.spec else Path(self.path).name


@dataclass(frozen=True)
class Ending:
    """What a script left: its names, and in words how it failed; `missing` names a package.

    `stopped` if it was told to end: it had run for too long.
    """

    names: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None
    missing: str | None = None
    stopped: bool = False


class Stopped(BaseException):
    """Raised in a script that is to end."""


def of_file(path: str) -> Script:
    """Read a file. Raises InputError if it cannot be read or is not Python."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return Script(path, _compiled(text, path))


def of_module(name: str) -> Script:
    """Find a module, with the current folder in reach. Raises InputError if there is none."""
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
    """Run a script as Python would, whatever it does; as an imported module if not `as_main`.

    From the call of `starting` on, the signal STOP ends it.
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
    """The folder that holds the package of a file in one: it may import its neighbours by it.

    It goes last, so that it hides nothing.
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
    """Such as `raised ValueError at line 12: no data`."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == script.path]
    place = f" at line {lines[-1]}" if lines else ""
    said = " ".join(str(error).split())
    return f"raised {type(error).__name__}{place}" + (f": {said[:300]}" if said else "")

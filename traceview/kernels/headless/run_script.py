"""Run the user's file or module, and report on one line how it ended."""

from __future__ import annotations

import ast
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from traceview.base.errors import InputError, unreadable
from traceview.base.records import record
from traceview.kernels.headless import compile_error
from traceview.kernels.headless.project.package import Package, package_of, project_folders

# LLVM, in Triton, takes SIGINT and both SIGUSR for itself, and scripts use SIGALRM.
STOP = signal.SIGVTALRM
"""The signal that interrupts a script at its time limit."""
_OF_INDUCTOR = (
    "torch._inductor.async_compile",
    "torch._inductor.runtime",
    "torch._inductor.triton_heuristics",
)


@record
class Script:
    """A file or a module to run; `path` is the file of a module.

    `package` is the package that it belongs to. A module of a package is run as a module, unless it
    has a part for `__main__`. `is_generated`: it is a graph or a kernel of Inductor
    (torch.compile).
    """

    path: str
    code: CodeType
    package: Package | None = None
    module: str | None = None
    has_main: bool = False
    is_generated: bool = False

    @property
    def name(self) -> str:
        """Its name in messages: a module's name or a file's."""
        return self.module or Path(self.path).name

    @property
    def is_library(self) -> bool:
        """Whether it is a module of a package that does nothing of its own when run."""
        return self.package is not None and not self.has_main


@record
class Ending:
    """The result of running a script: its globals, and how it failed, if it did.

    `missing` is a package that it failed to import. `stopped`: it was interrupted at its limit.
    `is_kernel`: a kernel cannot be compiled with any arguments. `exit_line`: it called exit()
    there.
    """

    names: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None
    missing: str | None = None
    stopped: bool = False
    is_kernel: bool = False
    exit_line: int | None = None


class Stopped(BaseException):
    """Raised in a script to interrupt it."""


def of_file(path: str) -> Script:
    """Compile a file. Raises InputError if it cannot be read or is not Python."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    return _script(path, text)


def of_module(name: str) -> Script:
    """Find and compile a module, also in the current folder. Raises InputError."""
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 (a str is what sys.path holds)
    path = _file_of(name)
    if path is None:
        remedy = "run traceview from the folder that contains it, or pass a FILE.py"
        raise InputError(f"{sys.executable} finds no module {name}", remedy)
    return _script(str(path), path.read_bytes(), name)


def _file_of(name: str) -> Path | None:
    """The source file of a module, found without importing the packages above it."""
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin and Path(spec.origin).is_file() else None
    for folder in spec.submodule_search_locations or ():
        place = Path(folder).joinpath(*rest)
        for path in (place.with_name(place.name + ".py"), place / "__init__.py"):
            if path.is_file():
                return path
    return None


def _script(path: str, text: bytes, module: str | None = None) -> Script:
    code, tree = _compiled(text, path), ast.parse(text)
    # An assert above the first function is on the surroundings, such as the name of the GPU.
    first = next((n.lineno for n in tree.body if isinstance(n, ast.FunctionDef)), 0)
    about = [n for n in tree.body if isinstance(n, ast.Assert) and n.lineno < first]
    if about:
        tree.body = [node for node in tree.body if node not in about]
        code = _compiled(tree, path)
    tests = (node.test for node in tree.body if isinstance(node, ast.If))
    has_main = any("__name__" in ast.unparse(test) for test in tests)
    package = package_of(Path(path), tree)
    if module and "." in module:
        depth = module.count(".") + (Path(path).name == "__init__.py")
        package = Package(Path(path).absolute().parents[depth], module)
    if package and not has_main:
        # Without asserts: those on a module's surroundings do not concern its kernels.
        code = _compiled(text, path, optimize=1)
    imports = (node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom))
    is_generated = any(name.startswith(_OF_INDUCTOR) for name in imports)
    return Script(path, code, package, module, has_main, is_generated)


def run(
    script: Script,
    *,
    as_main: bool,
    arguments: Sequence[str],
    starting: Callable[[], None] = lambda: None,
    afterwards: Callable[[dict[str, Any]], None] = lambda _: None,
    functions: Sequence[Any] = (),
) -> Ending:
    """Run a script as Python would and catch everything; without `as_main`, as an import.

    `starting` is called right before the script. From then on the signal STOP interrupts the script
    and `afterwards`, which is called with the script's globals. `functions` are the jitted
    functions so far, to find the line of one that does not compile.
    """
    as_main = as_main and not script.is_library
    module = _module(script, "__main__" if as_main else _import_name(script))
    sys.argv = [script.path, *arguments]
    if script.package is None:
        sys.path.insert(0, str(Path(script.path).parent))
        # At the end, so that they shadow nothing.
        sys.path += map(str, project_folders(Path(script.path)))
    try:
        with _stoppable():
            starting()
            exec(script.code, module.__dict__)  # noqa: S102 (the user asks for it)
            afterwards(module.__dict__)
    except Stopped:
        return Ending(module.__dict__, "was stopped", stopped=True)
    except SystemExit as end:
        failure = None if end.code in (None, 0) else f"exited with {end.code!r:.80}"
        return Ending(module.__dict__, failure, exit_line=_last_line(end, script))
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        is_kernel = compile_error.is_of_source(error)
        failure = _in_words(error, script, functions)
        return Ending(module.__dict__, failure, missing, is_kernel=is_kernel)
    return Ending(module.__dict__)


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
    return script.package.module if script.package else script.module or Path(script.path).stem


def _module(script: Script, name: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = script.path
    if script.package:
        # Relative imports need the package above.
        module.__package__ = script.package.parent
        importlib.import_module(script.package.parent)
    sys.modules[name] = module
    return module


def _compiled(text: bytes | ast.Module, path: str, optimize: int = -1) -> CodeType:
    try:
        return compile(text, path, "exec", dont_inherit=True, optimize=optimize)
    except SyntaxError as error:
        place = f"{path}, line {error.lineno}" if error.lineno else path
        raise InputError(f"{place}: not valid Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: not valid Python: {error}") from None


def _in_words(error: BaseException, script: Script, functions: Sequence[Any]) -> str:
    line = _last_line(error, script)
    place = f" at line {line}" if line else ""
    if line and hasattr(error, "node"):
        words = compile_error.in_words(error, functions)
        if words.startswith("it "):
            return f"raised {type(error).__name__}, launched at line {line}: {words}"
        return f"raised {words}, launched at line {line}"
    message = compile_error.on_one_line(str(error))
    return f"raised {type(error).__name__}{place}" + (f": {message}" if message else "")


def _last_line(error: BaseException, script: Script) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == script.path]
    return lines[-1] if lines else None

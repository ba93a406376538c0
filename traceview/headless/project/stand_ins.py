"""Stand-ins for modules that a kernel file imports and that this machine lacks.

A missing package, such as yaml or a CUDA extension, becomes a module whose names are inert objects.
An import whose failure the program handles itself fails as it would without stand-ins.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

_IS_QUERY = re.compile(r"(available|installed|importable)$")
_HANDLERS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_IMPORTLIB = ("<frozen importlib", "importlib/__init__.py")
_OURS = str(Path(__file__).parents[1])
# Their own imports of missing modules are theirs to handle.
_NEVER = ("torch", "triton", "numpy")
# Packages such as vllm.triton_utils re-export under these names what kernels are made of.
_PASSED_ON = {
    "triton": "triton",
    "tl": "triton.language",
    "torch": "torch",
    "gl": "triton.experimental.gluon.language",
    "gluon": "triton.experimental.gluon",
    "libdevice": "triton.language.extra.libdevice",
}


class StandIn:
    """An inert object: it can be called, subclassed, iterated, entered; it is false and empty."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the decorated object if used as a decorator, else another stand-in.

        Queries such as `package_available("triton")` get a true answer.
        """
        if len(arguments) == 1 and not keywords and _is_definition(arguments[0]):
            return arguments[0]
        if _IS_QUERY.search(self.__name__) and arguments and isinstance(arguments[0], str):
            # Whether a package is installed.
            try:
                spec = importlib.util.find_spec(arguments[0].partition(".")[0])
            except (ImportError, ValueError):
                return False
            return spec is not None and not isinstance(spec.loader, MissingModules)
        return StandIn(f"{self.__name__}()")

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}")

    def __mro_entries__(self, _: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __getitem__(self, _: Any) -> StandIn:
        return self

    def __or__(self, _: Any) -> StandIn:
        return self

    __ror__ = __or__

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __lt__(self, _: Any) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def __repr__(self) -> str:
        return f"<stand-in for {self.__name__}>"


class MissingModules(Loader):
    """Finds a stand-in for every module that nothing else finds; `names` are those replaced."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: Any = None
    ) -> ModuleSpec | None:
        """A stand-in's spec; None where the program only asks or handles the failure."""
        frames = list(_callers(sys._getframe(1)))
        ours = list(itertools.takewhile(_is_ours, frames))
        # The program only asks by importlib.util.find_spec, which loads nothing, or a library
        # imports, which handles what is missing.
        is_query = any(
            frame.f_code.co_name == "find_spec" and "importlib" in frame.f_code.co_filename
            for frame in frames[: len(ours) + 1]
        )
        names = (frame.f_globals.get("__name__", "") for frame in frames[len(ours) :])
        importer = str(next(names, "")).partition(".")[0]
        is_ours = name.partition(".")[0] == "traceview"
        if is_ours or is_query or importer in _NEVER or handles_failure():
            return None
        if not self.is_known(name):
            self.names.append(name)
        return ModuleSpec(name, self, is_package=True)

    def is_known(self, name: str) -> bool:
        """Whether a module, or one that it lies in, already has a stand-in."""
        return any(name == each or name.startswith(f"{each}.") for each in self.names)

    def create_module(self, _: ModuleSpec) -> ModuleType | None:
        """None: Python creates the module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module a stand-in for every name."""
        module.__path__ = []
        fill(module)


def fill(module: ModuleType) -> None:
    """Let a module answer with a stand-in for every name that it lacks."""

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "Version":
            # Comparisons with a stand-in would take the branch for old versions.
            return _imported("packaging.version").Version
        if name in _PASSED_ON:
            return sys.modules.get(_PASSED_ON[name]) or _imported(_PASSED_ON[name])
        value = StandIn(f"{module.__name__}.{name}")
        setattr(module, name, value)
        return value

    module.__dict__["__getattr__"] = missing


def handles_failure() -> bool:
    """Whether an import being executed is in a `try` that handles its failure."""
    frames = (frame for frame in _callers(sys._getframe(1)) if not _is_ours(frame))
    return any(
        first <= frame.f_lineno <= last
        for frame in frames
        for first, last in _handled_lines(frame.f_code.co_filename)
    )


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return any(part in file for part in _IMPORTLIB) or file.startswith(_OURS)


@functools.cache
def _handled_lines(file: str) -> tuple[tuple[int, int], ...]:
    """The lines of a file that are in a `try` with a handler for a failed import."""
    try:
        with open(file, "rb") as stream:  # noqa: PTH123 (a file name may be any text)
            tree = ast.parse(stream.read())
    except (OSError, ValueError, SyntaxError):
        return ()
    tries = (node for node in ast.walk(tree) if isinstance(node, ast.Try))
    handled = (t for t in tries if any(map(_handles_imports, t.handlers)))
    suppressing = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        and any("suppress" in ast.unparse(item.context_expr) for item in node.items)
    )
    bodies = (*(node.body for node in handled), *(node.body for node in suppressing))
    return tuple((b[0].lineno, b[-1].end_lineno or b[-1].lineno) for b in bodies)


def _handles_imports(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type
    if kinds is None:
        return True
    each = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
    return any(ast.unparse(kind).rpartition(".")[2] in _HANDLERS for kind in each)


def _is_definition(value: Any) -> bool:
    from triton.runtime.jit import KernelInterface

    return isinstance(value, (type, KernelInterface)) or (
        callable(value) and hasattr(value, "__code__")
    )


def _imported(name: str) -> Any:
    import importlib

    return importlib.import_module(name)

"""The imports of a file of a project, and stand-ins for modules that this machine lacks."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from traceview.base import units
from traceview.kernels.headless.project.package import TAKEN, Package

# Stand-ins for modules that a kernel file imports and that this machine lacks.
#
# A missing package, such as yaml or a CUDA extension, becomes a module whose names are inert
# objects. An import whose failure the program handles itself fails as it would without stand-ins.

_IS_QUERY = re.compile(r"(available|installed|importable)$")
_HANDLERS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_IMPORTLIB = ("<frozen importlib", "importlib/__init__.py")
_OURS = str(Path(__file__).parents[1])
# Packages such as vllm.triton_utils re-export under these names what kernels are made of.
_PASSED_ON = {
    "triton": "triton",
    "tl": "triton.language",
    "torch": "torch",
    "gl": "triton.experimental.gluon.language",
    "gluon": "triton.experimental.gluon",
    "libdevice": "triton.language.extra.libdevice",
}


class _Derived:
    """What classes that derive from a stand-in derive from; it takes what they pass on."""

    def __init__(self, *_: Any, **__: Any) -> None: ...


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

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        first = next(base for base in bases if isinstance(base, StandIn))
        return (_Derived,) if self is first else ()

    def __getitem__(self, _: Any) -> StandIn:
        return self

    def __or__(self, _: Any) -> StandIn:
        return self

    __ror__ = __truediv__ = __rtruediv__ = __add__ = __radd__ = __sub__ = __rsub__ = __or__
    __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __or__

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
        # TAKEN: their own imports of missing modules are theirs to handle.
        if is_ours or is_query or importer in TAKEN or handles_failure():
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
            return importlib.import_module("packaging.version").Version
        if name in _PASSED_ON:
            return sys.modules.get(_PASSED_ON[name]) or importlib.import_module(_PASSED_ON[name])
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


# The packages of a project, imported without running their `__init__.py` unless it is needed.
#
# A kernel file needs a few siblings, while the `__init__.py` files above it load the whole
# project. So a package at first has only its submodules. A name that its `__init__.py` imports
# causes that one import; only a name that it defines in another way makes it run.


@dataclass
class LazyPackages:
    """Finds the modules of a project's package; `failed` are those that raised, with the error."""

    package: Package
    failed: dict[str, str] = field(default_factory=dict)

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: Any = None
    ) -> ModuleSpec | None:
        """The spec of a package or source module of the project; None for anything else."""
        if name.partition(".")[0] != self.package.top:
            return None
        place = self.package.root.joinpath(*name.split("."))
        init, file = place / "__init__.py", place.with_name(place.name + ".py")
        if init.is_file():
            loader = _PackageLoader(name, str(init), self)
            return importlib.util.spec_from_file_location(name, init, loader=loader)
        if file.is_file():
            loaded = _ModuleLoader(name, str(file), self)
            return importlib.util.spec_from_file_location(name, file, loader=loaded)
        if not place.is_dir():
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(place)]
        return spec

    def survive(self, module: ModuleType, error: Exception) -> None:
        """Fill a module that raised with stand-ins, unless its importer handles the failure."""
        if handles_failure():
            raise error
        message = " ".join(str(error).split())[:120]
        self.failed[module.__name__] = f"{type(error).__name__}: {message}"
        fill(module)


class _ModuleLoader(SourceFileLoader):
    """Runs a module, and lets the import go on if it raises."""

    def __init__(self, name: str, path: str, packages: LazyPackages) -> None:
        super().__init__(name, path)
        self._packages = packages

    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except Exception as error:
            self._packages.survive(module, error)


class _PackageLoader(_ModuleLoader):
    """Runs `__init__.py` only when a name needs it."""

    _has_run = False

    def exec_module(self, module: ModuleType) -> None:
        folder = Path(self.path).parent
        # The names that an `__init__.py` imports from its project: level, module, name there.
        imports: dict[str, tuple[int, str, str]] = {}
        for node in ast.parse(Path(self.path).read_bytes()).body:
            if isinstance(node, ast.ImportFrom):
                place = node.level, node.module or ""
                imports |= {a.asname or a.name: (*place, a.name) for a in node.names}

        def missing(name: str) -> Any:
            if name.startswith("__") and name not in ("__all__", "__version__"):
                raise AttributeError(name)
            if name in imports and not self._has_run:
                value = _resolved(imports[name], module)
            elif (folder / f"{name}.py").is_file() or (folder / name).is_dir():
                value = importlib.import_module(f"{module.__name__}.{name}")
            else:
                return self._from_run(module, name)
            setattr(module, name, value)
            return value

        module.__dict__["__getattr__"] = missing

    def _from_run(self, module: ModuleType, name: str) -> Any:
        if not self._has_run:
            self._has_run = True
            module.__dict__.pop("__getattr__", None)
            super().exec_module(module)
            return getattr(module, name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")


def _resolved(place: tuple[int, str, str], module: ModuleType) -> Any:
    level, source, name = place
    base = module.__name__.split(".")
    base = base[: len(base) - level + 1] if level else []
    origin = importlib.import_module(".".join([*base, *([source] if source else [])]))
    # `from package import submodule` in the package's own __init__.py.
    if origin is not module and hasattr(origin, name):
        return getattr(origin, name)
    return importlib.import_module(f"{origin.__name__}.{name}")


_MOST_NAMED = 8


@dataclass
class ProjectImports:
    """The import hooks of one worker process; `install` puts them in place for good."""

    missing: MissingModules = field(default_factory=MissingModules)
    packages: LazyPackages | None = None

    def install(self, package: Package | None) -> None:
        """Make imports find the package's own files, and stand-ins for missing modules."""
        if package:
            self.packages = LazyPackages(package)
            for name in [n for n in sys.modules if n.partition(".")[0] == package.top]:
                del sys.modules[name]
            sys.meta_path.insert(0, self.packages)
            # At the end, so that other folders beside the package shadow nothing.
            sys.path.append(str(package.root))
        sys.meta_path.append(self.missing)

    @property
    def not_installed(self) -> tuple[str, ...]:
        """The modules that have a stand-in."""
        return tuple(self.missing.names)

    def notes(self) -> Iterator[str]:
        """Lines on modules that stand-ins replaced."""
        if self.missing.names:
            names = units.first(self.missing.names, _MOST_NAMED)
            yield f"not installed, and stood in for: {names}"
        failed = self.packages.failed if self.packages else {}
        if failed:
            each = [f"{name} ({error})" for name, error in failed.items()]
            yield f"raised when imported, and stood in for: {units.first(each, 3)}"

"""The imports of a file that belongs to a project, or that needs modules not installed here."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from traceview.headless.project.package import Package
from traceview.headless.project.stand_ins import MissingModules, fill, handles_failure

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
            yield f"not installed, and stood in for: {_listed(self.missing.names)}"
        failed = self.packages.failed if self.packages else {}
        if failed:
            each = [f"{name} ({error})" for name, error in failed.items()]
            yield f"raised when imported, and stood in for: {_listed(each, 3)}"


def _listed(names: list[str], most: int = _MOST_NAMED) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

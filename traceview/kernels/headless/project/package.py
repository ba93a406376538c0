"""The package that a file belongs to, and the project around it."""

from __future__ import annotations

import ast
from pathlib import Path

from traceview.base.records import record

_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")

# Packages that kernels are made of. A folder of such a name is a module of the folder above it.
TAKEN = ("torch", "triton", "numpy")
# Folders without __init__.py between a file and the package that it belongs to.
_MOST_NAMESPACES = 3


@record
class Package:
    """The place of a module: `root` is the folder that holds its top-level package."""

    root: Path
    module: str

    @property
    def top(self) -> str:
        """The name of the top-level package."""
        return self.module.partition(".")[0]

    @property
    def parent(self) -> str:
        """The name of the package that holds the module."""
        return self.module.rpartition(".")[0]

    @property
    def project(self) -> Path:
        """The folder of the project: the nearest with a project file, else the root."""
        near = (self.root, *self.root.parents[:2])
        return next((folder for folder in near if _is_project(folder)), self.root / self.top)


def package_of(path: Path, tree: ast.Module) -> Package | None:
    """The package of a file; None for a script that belongs to none.

    A file that imports from a folder above it by name (`from kernels.tiles import …` in kernels/)
    belongs to that folder, also where this is a copy in another package. Else the top is the
    outermost folder with `__init__.py`. In folders that have none, or whose relative imports reach
    above it, a file belongs to its project (pyproject.toml, setup.py).
    """
    path = path.absolute()
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    level = max((node.level for node in imports), default=0)
    by_name = _imported_from(path, tree)
    if by_name and level < len(path.relative_to(by_name).parts):
        return _named(path, by_name)
    inner = next((f for f in path.parents[: _MOST_NAMESPACES + 1] if _is_package(f)), None)
    if inner is not None:
        while above := next((f for f in inner.parents[:2] if _is_package(f)), None):
            inner = above
        if level < len(path.relative_to(inner.parent).parts):
            return _named(path, inner.parent)
    return _named(path, _project_root(path, level)) if level else None


def project_folders(path: Path) -> list[Path]:
    """The folders that hold the packages of a file's project: its root and `src`, if any."""
    above = path.absolute().parents[: _MOST_NAMESPACES + 1]
    root = next(filter(_is_project, above), None)
    return [each for each in (root, root / "src") if each.is_dir()] if root else []


def _imported_from(path: Path, tree: ast.Module) -> Path | None:
    """The parent of the folder around a file from which it imports by the folder's name."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    names += [n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module]
    for folder in path.parents[: _MOST_NAMESPACES + 1]:
        for parts in (name.split(".") for name in names):
            place = folder.parent.joinpath(*parts)
            is_there = place.is_dir() or place.with_name(f"{place.name}.py").is_file()
            if parts[0] == folder.name and len(parts) > 1 and is_there:
                return folder.parent
    return None


def _named(path: Path, root: Path) -> Package | None:
    while path.relative_to(root).parts[0] in TAKEN:
        # `import triton` in a folder of that name means Triton.
        root = root.parent
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    valid = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return Package(root, ".".join(parts)) if valid else None


def _project_root(path: Path, level: int) -> Path:
    """The root of relative imports: a project, its `src`, or the folder that they reach up to."""
    needed = path.parents[min(level, len(path.parents) - 1)]
    for folder in (needed, *needed.parents):
        if _is_project(folder):
            source = folder / "src"
            return source if needed.is_relative_to(source) else folder
    return needed


def _is_package(folder: Path) -> bool:
    return folder.name.isidentifier() and (folder / "__init__.py").is_file()


def _is_project(folder: Path) -> bool:
    return any((folder / marker).exists() for marker in _MARKERS)

"""Run callbacks after a module has been imported, without importing it."""

from __future__ import annotations

import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Callback = Callable[[ModuleType], None]


def after(module_name: str, callback: Callback) -> None:
    """Call `callback(module)` once, after the import of a module or now if already imported.

    Exceptions of the callback are ignored.
    """
    module = sys.modules.get(module_name)
    if module is not None and not _is_being_imported(module):
        _call([callback], module)
        return
    _finder.waiting.setdefault(module_name, []).append(callback)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder:
    """A meta-path finder that delegates to the others and watches the load of awaited modules."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}
        self._asking: set[tuple[str, int]] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of an awaited module, with its loader watched; else None."""
        asking = (name, get_ident())
        if name not in self.waiting or asking in self._asking:
            return None
        self._asking.add(asking)
        try:
            spec = self._found_by_others(name, path, target)
        finally:
            self._asking.discard(asking)
        if spec is not None:
            _watch(spec.loader, name)
        return spec

    def _found_by_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None

    def loaded(self, name: str, module: ModuleType) -> None:
        """Run the callbacks of a module; uninstall the finder when no callback is left."""
        callbacks = self.waiting.pop(name, [])
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        _call(callbacks, module)


_finder = _Finder()


def _watch(loader: Any, name: str) -> None:
    """Wrap exec_module of a loader for one module."""
    execute = getattr(loader, "exec_module", None)
    # A class as loader is shared by many modules.
    if execute is None or isinstance(loader, type):
        return

    def exec_module(module: ModuleType) -> None:
        # A zip archive has one loader for all its modules.
        if module.__name__ == name:
            loader.__dict__.pop("exec_module", None)
        execute(module)
        if module.__name__ == name:
            _finder.loaded(name, module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        # The loader has no instance attributes: do not watch it.
        return


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _call(callbacks: list[Callback], module: ModuleType) -> None:
    for callback in callbacks:
        try:
            callback(module)
        except Exception:  # noqa: S112 (the program's import must not fail)
            continue

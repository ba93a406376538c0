"""Do something as soon as a module has been imported, and import nothing for it."""

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
    """Call `callback` with a module, once: when it has been imported, or now if it has been.

    What the callback raises is dropped, and the import goes on.
    """
    module = sys.modules.get(module_name)
    if module is not None and not _is_being_imported(module):
        _call([callback], module)
        return
    _finder.waiting.setdefault(module_name, []).append(callback)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder:
    """Finds nothing itself: it lets the others find what is waited for, and watches it load."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}
        self._asking: set[tuple[str, int]] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that is waited for, with its loader watched; else None."""
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
        """Tell those who waited; when nobody waits any more, imports are as fast as ever."""
        callbacks = self.waiting.pop(name, [])
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        _call(callbacks, module)


_finder = _Finder()


def _watch(loader: Any, name: str) -> None:
    """Put a method before that of the same name of the loader, which else stays what it is."""
    execute = getattr(loader, "exec_module", None)
    # A class as loader is that of many modules.
    if execute is None or isinstance(loader, type):
        return

    def exec_module(module: ModuleType) -> None:
        # The loader of a zip archive is that of all modules in it.
        if module.__name__ == name:
            loader.__dict__.pop("exec_module", None)
        execute(module)
        if module.__name__ == name:
            _finder.loaded(name, module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        # It has no room for one: it loads unwatched.
        return


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _call(callbacks: list[Callback], module: ModuleType) -> None:
    for callback in callbacks:
        try:
            callback(module)
        except Exception:  # noqa: S112 (the user's import must not fail for it)
            continue

"""Range names of modules: an outermost module's class, the path of a module inside it."""

from __future__ import annotations

from .. import python_events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

MOST_RANGES, MOST_FOLLOWED = 64, 16
"""Ranges inside a call of an outermost module, and those of them that its backward pass has, too.

Their cost must stay small against a step: 3 µs for one, 25 µs for its like in a backward pass (CPU
time without a GPU, switched at random from step to step in one process, 152 steps of each)."""
_MOST_PLACES = 8
_WRAPPERS = ("module", "_orig_mod")
_FORWARD = "forward"


class ModuleNames:
    """Names of the ranges of modules, by the id of the module.

    `inside` has the modules inside an outermost one that get their own range: the outer levels of
    the module tree, as many as hold at most MOST_RANGES modules together. `followed` are those of
    them, at most MOST_FOLLOWED, that have one in the backward pass.
    """

    def __init__(self, named_inside: bool) -> None:
        self.inside: dict[int, str] = {}
        self.followed: set[int] = set()
        # Keyed by class too: a loss module created at each step may reuse the id of another module.
        self._outermost: dict[tuple[int, type], str] = {}
        self._named_inside = named_inside
        self._left = 0
        self._callers: dict[str, dict[int, set[int]]] = {}

    def outermost(self, module: Any) -> str:
        """The name of a module that no other module calls, such as `forward GPT`."""
        self._left = 2 * MOST_RANGES
        name = self._outermost.get((id(module), type(module)))
        if name is None:
            model = _unwrapped(module)
            name = self._outermost[id(module), type(module)] = f"{_FORWARD} {type(model).__name__}"
            if self._named_inside:
                self._name_inside(model)
        return name

    def affords(self, module: Any) -> bool:
        """Whether an inner module gets a range; past the limit of calls it loses its range."""
        self._left -= 1
        if self._left < 0:
            self.inside.pop(id(module), None)
        return self._left >= 0

    def place(self, name: str, caller: FrameType) -> None:
        """Note the line that calls a module, once for each place in the code. Never raises."""
        if not self._named_inside:
            return
        places = self._callers.setdefault(name, {}).setdefault(id(caller.f_code), set())
        if caller.f_lasti not in places and len(places) < _MOST_PLACES:
            places.add(caller.f_lasti)
            python_events.called(name, caller)

    def _name_inside(self, model: Any) -> None:
        level = [("", model)]
        room = MOST_RANGES
        while level := [child for path, module in level for child in _called(path, module)]:
            room -= len(level)
            if room < 0:
                return
            self.inside.update((id(module), path) for path, module in level)
            if room >= MOST_RANGES - MOST_FOLLOWED:
                self.followed.update(id(module) for _, module in level)


def _unwrapped(module: Any) -> Any:
    """The model inside torch.compile's and the data-parallel wrappers."""
    for _ in range(len(_WRAPPERS) + 1):
        children = dict(module.named_children())
        wrapped = [children[name] for name in _WRAPPERS if list(children) == [name]]
        if not wrapped or type(module).__module__.partition(".")[0] != "torch":
            break
        module = wrapped[0]
    return module


def _called(path: str, module: Any) -> Iterator[tuple[str, Any]]:
    """Child modules that are called, by path; lists and dicts of modules give their children."""
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        forward = getattr(type(child), "forward", None)
        if getattr(forward, "__name__", "") != "_forward_unimplemented":
            yield inner, child
        else:
            yield from _called(inner, child)

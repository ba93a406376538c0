"""A Triton kernel of the program launched with other options or another block constant."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any

from traceview.trials.remedies.base import INSTALLED, Keywords, ProgramRemedy, RemedyRun

_OPTIONS = ("num_warps", "num_stages", "maxnreg")
_CHANGE = re.compile(r"(\w+)\.(\w+)=([1-9][0-9]{0,5})", re.ASCII)


def takes(argument: str) -> Callable[[Any, RemedyRun], None]:
    """What launches `kernel.num_warps=8,kernel.BLOCK=512` so. Raises ValueError for other text."""
    changes: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for each in argument.split(","):
        match = _CHANGE.fullmatch(each)
        if match is None:
            raise ValueError(f"{each!r} is not KERNEL.KEYWORD=NUMBER")
        kernel, name, value = match.groups()
        number = int(value)
        if name not in ("num_stages", "maxnreg") and number & (number - 1):
            raise ValueError(f"{each!r} is not a power of two")
        changes[kernel][name] = number
    return partial(_install, changes)


def _install(changes: Mapping[str, Keywords], _: Any, run: RemedyRun) -> None:
    try:
        from triton.runtime.jit import KernelInterface
    except ImportError:
        run.reject("Triton is not installed")
        return
    original = KernelInterface.__getitem__

    @wraps(original)
    def __getitem__(self: Any, grid: Any) -> Any:  # noqa: N807
        kernel, values = _of_kernel(self, changes, KernelInterface)
        if not values:
            return original(self, grid)

        def launch(*args: Any, **kwargs: Any) -> Any:
            new = {k: v for k, v in values.items() if run.on and kwargs.get(k) != v}
            constants = [name for name in new if name not in _OPTIONS]
            for name in constants:
                _check(kernel, name, grid, kwargs, run)
            if new:
                run.applied(kernel, new)
            follows = _following(kernel, grid, constants, run) if constants else grid
            return original(self, follows)(*args, **{**kwargs, **new})

        return launch

    KernelInterface.__getitem__ = __getitem__


def _of_kernel(
    launched: Any, changes: Mapping[str, Keywords], interface: type
) -> tuple[str, Keywords]:
    """The name of a kernel and its changes: none where it is a library's, or an autotuner's.

    What heuristics choose stays as well.
    """
    chosen: set[str] = set()
    while isinstance(getattr(launched, "fn", None), interface):
        if hasattr(launched, "configs"):
            return "", {}
        chosen.update(getattr(launched, "values", ()))
        launched = launched.fn
    code = getattr(getattr(launched, "fn", None), "__code__", None)
    if code is None or not INSTALLED.isdisjoint(Path(code.co_filename).parts):
        return "", {}
    name = code.co_name
    return name, {k: v for k, v in changes.get(name, {}).items() if k not in chosen}


def _check(kernel: str, name: str, grid: Any, given: Keywords, run: RemedyRun) -> None:
    """Reject a constant that is no power of two among the keywords, or whose grid is fixed."""
    value = given.get(name)
    if type(value) is not int or value < 1 or value & (value - 1):
        run.reject(f"{kernel} is not launched with a power of two as {name}=…")
    if not callable(grid):
        run.reject(f"the grid of {kernel} is fixed, and does not follow {name}")


def _following(kernel: str, grid: Any, constants: list[str], run: RemedyRun) -> Any:
    """A grid that rejects the remedy where it does not read the constants from its argument."""

    def follows(meta: Keywords) -> Any:
        read = _Read(meta)
        size = grid(read)
        for name in constants:
            if name not in read.names:
                run.reject(f"the grid of {kernel} does not follow {name}")
        return size

    return follows


class _Read(dict[str, Any]):
    """The arguments of a launch, which notes those that are read."""

    def __init__(self, values: Keywords) -> None:
        super().__init__(values)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)


REMEDY = ProgramRemedy(
    name="triton_launch",
    does="Launch a Triton kernel with other options",
    answers=r"fewer warps \(num_warps\)",
    effect="a thread of the kernel moves more bytes at once, or holds less",
    takes=takes,
    may_change="roundings",
    is_switchable=True,
    bounds=("load-widths",),
)

"""What a remedy is, and what those in the program share.

Everything here and in the remedies runs inside the user's program: only the standard library is
imported, and torch is passed in.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from threading import get_ident
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary

from traceview.base.records import record

ROUNDING, TF32, BF16 = 2e-5, 2.0**-10, 2.0**-7
"""Relative difference of losses and gradient norms that a step may add: sums in another order in
fp32, products rounded to 11 bits, and to 8 bits (both operands)."""

INSTALLED = frozenset(("site-packages", "dist-packages"))
"""Folders of what is installed, as opposed to the program's own."""

Keywords = Mapping[str, Any]


class RemedyRun(Protocol):
    """The run of a program with remedies, as these see it.

    `on` is False in the blocks of steps that run without a remedy that can be switched.
    """

    @property
    def on(self) -> bool:
        """Whether remedies are on in this step."""

    def applied(self, callee: str = "", keywords: Keywords | None = None) -> None:
        """Note that the remedy took effect, and the user's line that calls `callee`.

        `keywords` are those that this call gets.
        """

    def reject(self, reason: str) -> None:
        """End the run: the remedy is wrong for this program. Does not return."""

    def at_switch(self, switch: Callable[[bool], None]) -> None:
        """Call `switch(on)` as the first step begins, and whenever `on` changes."""


@record
class SourceEdit:
    """A replacement in a source text: bounds as `ast` has them (lines from 1, columns in bytes)."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@record
class ProgramRemedy:
    """One change of a program that needs no thought, made in memory.

    `does` is an imperative. `answers` is a pattern of the actions of findings that ask for it.
    `install(torch, run)` changes torch in the program; `rewrites(source)` are edits of the main
    script instead, with the text `in_run` in runs that switch it. `takes(argument)` returns its
    `install` for what stands behind `:` in its name, which it then needs. `effect` says what it
    does to calls and operations. `may_change` says what results it changes and `bound` by how much
    per step; with `reseeds`, also the random numbers. `line` is a statement behind the imports that
    does the same, `how` says how to write it where no edit of a line does. A remedy with
    `is_switchable` can be on in one step and off in the next. `needs` are remedies that it builds
    on, `instead_of` those that it excludes. `settles` is the number of steps until its gain is
    steady. Forecasts of the analyses `bounds` are of more than it changes, and so upper bounds.
    """

    name: str
    does: str
    answers: str
    effect: str
    install: Callable[[Any, RemedyRun], None] = lambda _, __: None
    rewrites: Callable[[str], list[SourceEdit]] | None = None
    in_run: str = ""
    takes: Callable[[str], Callable[[Any, RemedyRun], None]] | None = None
    line: str = ""
    how: str = ""
    may_change: str = "nothing"
    bound: float = ROUNDING
    reseeds: bool = False
    is_switchable: bool = False
    needs: tuple[str, ...] = ()
    instead_of: tuple[str, ...] = ()
    settles: int = 8
    bounds: tuple[str, ...] = ()


class Setting:
    """A value of the program that a remedy changes to `choose(value)`, and gives back.

    `before` is what the program would have without the remedy, where that has changed it already.
    """

    def __init__(self, choose: Callable[[Any], Any], before: Any = None) -> None:
        self._choose = choose
        self._before, self._after = before, None if before is None else choose(before)

    def value(self, now: Any, *, on: bool) -> Any:
        """What to set in place of `now`: with the remedy, or as the program last had it."""
        if on:
            wanted = self._choose(now)
            if wanted != now:
                self._before, self._after = now, wanted
            return wanted
        # What the program has set meanwhile stays.
        return self._before if now == self._after else now


def switch_setting(
    run: RemedyRun,
    read: Callable[[], Any],
    write: Callable[[Any], object],
    choose: Callable[[Any], Any],
) -> None:
    """Change a setting of torch to `choose(value)` while remedies are on."""
    setting = Setting(choose)

    def switch(on: bool) -> None:
        now = read()
        if (value := setting.value(now, on=on)) != now:
            write(value)
            run.applied()

    run.at_switch(switch)


Choose = Callable[[Mapping[str, Any]], Keywords | None]


def add_keywords(
    holder: Any,
    run: RemedyRun,
    choose: Choose,
    added_to: Callable[[Any, Keywords, Keywords], bool] = lambda *_: True,
) -> None:
    """Let each creation of a class get the keywords that `choose(arguments)` returns.

    Where the program passes one of them by position all stay as they are. `added_to` gets the
    object, what these arguments were, and the keywords, and says whether they have an effect.
    """
    original = holder.__init__
    signature = inspect.signature(original)

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        added: Keywords = {}
        given: Mapping[str, Any] = {}
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError:
            pass  # The program's own error: the original raises it.
        else:
            bound.apply_defaults()
            given = bound.arguments
            by_position = list(signature.parameters)[: len(args) + 1]
            chosen = choose(given) or {}
            added = {} if set(chosen).intersection(by_position) else chosen
        original(self, *args, **{**kwargs, **added})
        if added and added_to(self, {name: given[name] for name in added}, added):
            run.applied(holder.__name__, added)

    holder.__init__ = __init__


class _Switched:
    """An optimizer that was given keywords: `own` are those that each group sets itself."""

    def __init__(self, before: Keywords, added: Keywords, own: list[set[str]]) -> None:
        self._before, self._added, self._own = before, added, own
        self._settings: dict[int, Setting] = {}

    def switch(self, torch: Any, optimizer: Any, *, on: bool) -> bool:
        """Switch the groups that leave it to the optimizer; whether there are any."""
        before, added = self._before, self._added
        optimizer.defaults.update(added if on else before)
        # By their numbers: loading a state replaces the groups.
        for number, (group, own) in enumerate(zip(optimizer.param_groups, self._own, strict=False)):
            if not own.isdisjoint(added):
                group.update({name: before[name] for name in added if name not in own})
                continue
            setting = self._settings.setdefault(number, Setting(lambda _: added, before))
            group.update(setting.value({name: group.get(name) for name in added}, on=on))
            if "fused" in added:
                _place_counts(torch, optimizer, group)
        if "fused" in added:
            every = all(group.get("fused") for group in optimizer.param_groups)
            optimizer._step_supports_amp_scaling = every
        return bool(self._settings)


def change_optimizers(torch: Any, run: RemedyRun, classes: Sequence[str], choose: Choose) -> None:
    """Add keywords to optimizers of torch, which read them in each step, and can be switched.

    Parameter groups that set one of them themselves stay as they are.
    """
    made, own = WeakKeyDictionary[Any, _Switched](), WeakKeyDictionary[Any, list[set[str]]]()

    def noting(original: Any) -> Any:
        def add_param_group(self: Any, param_group: Any) -> None:
            keys = set(param_group) if isinstance(param_group, dict) else set()
            original(self, param_group)
            own.setdefault(self, []).append(keys)

        return add_param_group

    def added_to(optimizer: Any, before: Keywords, added: Keywords) -> bool:
        made[optimizer] = _Switched(before, added, own.setdefault(optimizer, []))
        return made[optimizer].switch(torch, optimizer, on=run.on)

    def switch(on: bool) -> None:
        for optimizer, each in list(made.items()):
            each.switch(torch, optimizer, on=on)

    replace_function(torch.optim.Optimizer, "add_param_group", noting)
    for name in classes:
        add_keywords(getattr(torch.optim, name), run, choose, added_to)
    run.at_switch(switch)


def _place_counts(torch: Any, optimizer: Any, group: Any) -> None:
    """Put the numbers of steps where the kernels count: fused and captured ones on the GPU."""
    for parameter in group["params"]:
        state = optimizer.state.get(parameter, {})
        if isinstance(state.get("step"), torch.Tensor):
            on_gpu = group["fused"] or group.get("capturable")
            state["step"] = state["step"].to(parameter.device if on_gpu else "cpu")


Call = Callable[[Callable[..., Any], Any, Any, Any], Any]


def around_models(torch: Any, call: Call) -> None:
    """Make calls of modules that no other module calls through `call(original, module, a, kw)`."""
    original, inside = torch.nn.Module.__call__, set()

    @wraps(original)
    def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        # First: torch.compile, which traces this, folds it to a constant.
        if torch.compiler.is_compiling() or get_ident() in inside:
            return original(self, *args, **kwargs)
        thread = get_ident()
        inside.add(thread)
        try:
            return call(original, self, args, kwargs)
        finally:
            inside.discard(thread)

    torch.nn.Module.__call__ = _wrapped_call_impl


def has_parameters(module: Any) -> bool:
    """Whether a module is a model rather than a loss."""
    return next(iter(module.parameters()), None) is not None


def replace_function(module: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of a function, also where modules took it by its name."""
    original = getattr(module, name)
    replaced = wraps(original)(make(original))
    for holder, each in list(sys.modules.items()):
        taken = getattr(each, "__dict__", {}).get(name) is original
        if taken and not holder.startswith("torch."):
            setattr(each, name, replaced)
    setattr(module, name, replaced)


def need_gpu(torch: Any, run: RemedyRun, what: str = "it changes nothing without a GPU") -> None:
    """Reject a remedy on a machine without a GPU."""
    if not torch.cuda.is_available():
        run.reject(what)


Outcome = Literal["keep", "no gain", "slower", "changes results", "undecided", "failed", "rejected"]

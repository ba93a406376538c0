"""What edits are looked up in: the graph, its measured steps, and the selected ranges."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from difflib import SequenceMatcher
from functools import cached_property

import numpy as np

from traceview.edits.requests import EditRequest
from traceview.errors import InputError
from traceview.facts.dependencies.forecast import Model, model
from traceview.facts.dependencies.replay import Edit
from traceview.facts.ranges.selection import check, selected_calls, selected_operations
from traceview.facts.steps.steps import step_of_calls, step_of_operations, steps
from traceview.records import record
from traceview.tables import Array, Mask
from traceview.trace import Selection, Trace


@record
class AppliedEdit:
    """What an edit touches, and how it changes the graph.

    `items` of `noun` take `time_ns`, both per measured step, or in all without steps. `values` are
    further figures, whose names end in their unit; `names` are further words, such as a product.
    """

    request: EditRequest
    noun: str
    items: float
    time_ns: float
    change: Edit
    values: Mapping[str, float] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


@record
class EditScope:
    """A recording with its model. Edits touch only what was launched in the selected ranges."""

    trace: Trace
    selected: Trace

    @classmethod
    def of(cls, trace: Trace, ranges: Sequence[str], exclude: Sequence[str]) -> EditScope:
        """Raises InputError for a glob that matches no range."""
        if not (ranges or exclude):
            return cls(trace, trace)
        selected = trace.but(selection=Selection(tuple(ranges), tuple(exclude)))
        check(selected)
        return cls(trace, selected)

    @property
    def model(self) -> Model:
        return model(self.trace)

    @cached_property
    def steps(self) -> int:
        """The measured steps, 0 where the run counts as a whole."""
        return int(np.count_nonzero(self.model.follows))

    @cached_property
    def operations(self) -> Mask:
        """True for the selected operations that are in the graph."""
        result: Mask = selected_operations(self.selected) & (self.model.item_of_operation >= 0)
        return result

    @cached_property
    def calls(self) -> Mask:
        """True for the selected rows of api_calls that are in the graph."""
        result: Mask = selected_calls(self.selected) & (self.model.graph.item_of_call >= 0)
        return result

    @cached_property
    def _numbers(self) -> tuple[Array, Array]:
        """The model's number of the step of each operation and of each API call, −1 for none."""
        of_operation, graph = step_of_operations(self.trace), self.model.graph
        ends = graph.operation[self.model.last - graph.calls]
        number = np.full(len(steps(self.trace)) + 1, -1, np.int64)
        number[of_operation[ends]] = self.model.step
        calls = np.arange(len(graph.item_of_call))
        return number[of_operation], number[step_of_calls(self.trace, calls)]

    def measured_operations(self, rows: Array) -> Array:
        """Those of some operations that count: in measured steps, without steps after warm-up."""
        if not self.steps:
            ends = self.model.graph.operation[self.model.last - self.model.graph.calls]
            chosen: Array = rows[np.isin(rows, ends)]
            return chosen
        return self._in_measured(rows, self._numbers[0])

    def measured_calls(self, rows: Array) -> Array:
        """Those of some API calls that count: in measured steps, without steps all."""
        if not self.steps:
            return rows
        return self._in_measured(rows, self._numbers[1])

    def _in_measured(self, rows: Array, step: Array) -> Array:
        chosen: Array = rows[np.append(self.model.follows, False)[step[rows]]]
        return chosen

    def per_step(self, amount: float) -> float:
        """A sum over measured steps as a mean per step, or the sum itself without steps."""
        return float(amount) / max(self.steps, 1)


# Names that a text matches, and those that come near where it matches none.

_MOST_LISTED = 5
_NAME = 80
"""Characters of a name in an error."""
_NEAR = 0.6
"""Part of a word that a name has in order, from which it counts as near: `lyernorm` and
`layer_norm_fwd` share 7 of 8 characters, `nope` and `copy` 2 of 4."""


def globbed(text: str) -> re.Pattern[str]:
    """A glob with `*` and `?`, for whole names of either case; brackets stand for themselves."""
    parts = re.split(r"([*?])", re.sub(r"\*+", "*", text))
    wild = {"*": ".*", "?": "."}
    pattern = "".join(wild.get(part) or re.escape(part) for part in parts)
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def no_match(
    what: str, text: str, names: Iterable[str] | Counter[str], hint: str = ""
) -> InputError:
    """The error for a text that matches none of some names, which come with their weight or order.

    It lists those that hold the longest word of the text, then similar ones, then the first.
    """
    ordered = [n for n, _ in names.most_common()] if isinstance(names, Counter) else [*names]
    ordered = [name for name in dict.fromkeys(ordered) if name.strip()]
    if not ordered:
        return InputError(f"no {what} matches {text[:_NAME]!r}", f"the recording names no {what}")
    word = max(re.split(r"[*?\s]+", text.lower()), key=len)
    held = [name for name in ordered if word and word in name.lower()]
    rank = {name: _similarity(word, name.lower()) for name in ordered[:500]}
    near = sorted((n for n in rank if rank[n] >= _NEAR), key=lambda name: -rank[name])
    listed = [*dict.fromkeys([*held, *near])] or ordered
    shown = ", ".join(repr(_short(name)) for name in listed[:_MOST_LISTED])
    more = len(listed) - _MOST_LISTED
    rest = f" and {more} more" if more > 0 else ""
    lead = "closest" if listed is not ordered else "there are"
    return InputError(
        f"no {what} matches {text[:_NAME]!r}", f"{lead}: {shown}{rest}{f'; {hint}' if hint else ''}"
    )


def _similarity(word: str, name: str) -> float:
    """How much of a word a name has in order, of the longest part that they share."""
    if not word:
        return 0.0
    matcher = SequenceMatcher(None, word, name[:200], autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks() if block.size > 1) / len(word)


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME // 2]}…{name[-_NAME // 2 + 1 :]}"

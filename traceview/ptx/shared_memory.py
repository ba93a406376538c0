"""Which shared variables a PTX function reaches: its own, the module's, those of its callees."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from traceview.ptx.declarations import SharedVariable, room

# Registers, which begin with %, name nothing in memory.
IDENTIFIER = re.compile(r"(?<![%\w$])[A-Za-z_$][\w$]*", re.ASCII)


class Uses(NamedTuple):
    """A function's own shared variables and its operands, which name whatever else it uses."""

    own: Sequence[SharedVariable]
    operands: Iterable[str]


def static_shared_bytes(
    functions: Mapping[str, Uses], of_module: Sequence[SharedVariable]
) -> dict[str, int]:
    """For each function the bytes of shared memory that its block takes without a launch's say."""
    if not of_module and not any(uses.own for uses in functions.values()):
        return dict.fromkeys(functions, 0)
    # The module's variables lie below those of functions, as ptxas places them.
    owned: dict[str, Sequence[SharedVariable]] = {
        **{variable.name: (variable,) for variable in of_module},
        **{name: uses.own for name, uses in functions.items()},
    }
    place = {name: number for number, name in enumerate(owned)}
    named = {
        name: owned.keys() & set(chain.from_iterable(map(IDENTIFIER.findall, uses.operands)))
        for name, uses in functions.items()
    }
    return {
        name: room(
            variable
            for each in sorted(_reached(name, named), key=place.__getitem__)
            for variable in owned[each]
        )
        for name in functions
    }


def _reached(name: str, named: Mapping[str, set[str]]) -> set[str]:
    """The function and whatever it names, or those name in turn."""
    reached = {name}
    waiting = [name]
    while waiting:
        fresh = named.get(waiting.pop(), set()) - reached
        reached |= fresh
        waiting.extend(fresh)
    return reached

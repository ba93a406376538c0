"""Static shared memory of PTX functions: their own variables, the module's, their callees'."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from traceview.ptx.declarations import SharedVariable, allocated_bytes

# Registers, which begin with %, are not variables.
IDENTIFIER = re.compile(r"(?<![%\w$])[A-Za-z_$][\w$]*", re.ASCII)


class Uses(NamedTuple):
    """A function's shared variables, and its operands, which name what else it uses."""

    own: Sequence[SharedVariable]
    operands: Iterable[str]


def static_shared_bytes(
    functions: Mapping[str, Uses], of_module: Sequence[SharedVariable]
) -> dict[str, int]:
    """The bytes of static shared memory per block, by function."""
    if not of_module and not any(uses.own for uses in functions.values()):
        return dict.fromkeys(functions, 0)
    # The module's variables lie below those of functions, as ptxas places them.
    owned: dict[str, Sequence[SharedVariable]] = {
        **{variable.name: (variable,) for variable in of_module},
        **{name: uses.own for name, uses in functions.items()},
    }
    named = {
        name: set(chain.from_iterable(map(IDENTIFIER.findall, uses.operands)))
        for name, uses in functions.items()
    }
    reached = _reached(owned, named)
    return {
        name: allocated_bytes(variable for owner in reached[name] for variable in owned[owner])
        for name in functions
    }


def _reached(
    owned: Mapping[str, Sequence[SharedVariable]], named: Mapping[str, set[str]]
) -> dict[str, list[str]]:
    """The owners of variables that each function uses, directly or through its callees.

    Walks from each owner up to its users, as most functions own no variable. In order of `owned`.
    """
    users: dict[str, list[str]] = {}
    for function, names in named.items():
        for name in names & owned.keys():
            users.setdefault(name, []).append(function)
    reached: dict[str, list[str]] = {name: [] for name in named}
    for owner in filter(owned.get, owned):
        for function in _upwards(owner, users):
            if function in reached:
                reached[function].append(owner)
    return reached


def _upwards(owner: str, users: Mapping[str, Sequence[str]]) -> set[str]:
    """The owner and all its direct and indirect users."""
    seen = {owner}
    waiting = [owner]
    while waiting:
        fresh = set(users.get(waiting.pop(), ())) - seen
        seen |= fresh
        waiting.extend(fresh)
    return seen

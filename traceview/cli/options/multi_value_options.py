"""Options that take several values: `--num-warps 4 8`.

Click options take a fixed number of values. So the arguments are rewritten before click parses
them, repeating the option for each value: `--num-warps 4 --num-warps 8`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_SUFFIXES = (".py", ".ptx", ".cubin", ".cu", ".sqlite")
_NAMED = re.compile(r"[^\W\d]\w*=.*", re.DOTALL)
_TYPED = re.compile(r"\s*\*|[^,]+,")


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit()


def _is_arch(value: str) -> bool:
    return re.fullmatch(r"sm_\d+[af]?", value) is not None


def _is_named(value: str) -> bool:
    return _NAMED.fullmatch(value) is not None and not _is_file(value)


def _is_signature(value: str) -> bool:
    return _TYPED.match(value) is not None and not _is_file(value)


def _is_file(value: str) -> bool:
    return value.endswith(_SUFFIXES) or Path(value).exists()


FORMS: Mapping[str, Callable[[str], bool]] = {
    "--num-warps": _is_number,
    "--num-stages": _is_number,
    "--arch": _is_arch,
    "--constexpr": _is_named,
    "--signature": _is_signature,
}
"""Multi-value options, each with a test for what may be one of its further values."""


def one_option_per_value(arguments: Sequence[str]) -> list[str]:
    """Repeat each option before each further value of it.

    Only words of the option's form count as values: in `--num-warps 4 gelu.py` the target follows.
    """
    return list(_spread(arguments))


def split_at_double_dash(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments at `--`, which is in neither part."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return list(arguments[:end]), list(arguments[end + 1 :])


def _spread(arguments: Sequence[str]) -> Iterator[str]:
    option, values = "", 0
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name in FORMS:
            option, values = name, 1 if equals else 0
        elif values and FORMS[option](argument):
            yield option
        elif option and not values:
            values = 1
        else:
            option, values = "", 0
        yield argument


def one_or_list(values: Sequence[Any]) -> Any:
    """None for no value, a single value as it is, several distinct ones as a list."""
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        return different
    return different[0] if different else None

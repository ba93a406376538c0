"""torch.compile on first call: importing its compiler takes seconds that few callers need."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by torch.compile when it is first called."""

    @cache
    def made() -> Callable[..., Any]:
        return torch.compile(function)

    @wraps(function)
    def called(*inputs: Any) -> Any:
        return made()(*inputs)

    return called

"""Keep torch.compile from tracing our frames, as if they were written in C."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType
    from typing import Any


def tracing(torch: Any) -> Callable[[], bool]:
    """The function that tells if torch.compile traces, which folds its result to a constant."""
    is_compiling: Callable[[], bool] | None = getattr(torch.compiler, "is_dynamo_compiling", None)
    return is_compiling or (lambda: False)


def hide(modules: Iterable[ModuleType], others: Iterable[Any] = ()) -> None:
    """Hide the functions and methods of these modules of ours, and `others`.

    To be called once torch._dynamo is imported.
    """
    package = __name__.rpartition(".")[0]
    values = [value for module in modules for value in vars(module).values()]
    ours = [v for v in values if str(getattr(v, "__module__", "")).startswith(package)]
    methods = [m for value in ours if isinstance(value, type) for m in vars(value).values()]
    functions = (*others, *ours, *methods)
    codes = {code for f in functions if (code := getattr(f, "__code__", None))}
    skip = sys.modules["torch._dynamo.decorators"].skip_code
    while codes:
        code = codes.pop()
        skip(code)
        codes.update(inner for inner in code.co_consts if isinstance(inner, type(code)))

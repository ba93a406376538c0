"""Keep torch.compile from tracing our frames, as if in C, and its workers out of the recording."""

from __future__ import annotations

import os
import sys
from functools import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType
    from typing import Any

_LOADED = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
"""By these variables nsys has its libraries loaded."""


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


def unprofile_workers(subproc_pool: ModuleType) -> None:
    """Start the compile workers of torch._inductor.compile_worker.subproc_pool outside of nsys.

    They run nothing on a GPU, yet nsys would load its libraries into each of them, and into each
    compiler and assembler that they start: 40 ms more for each.
    """
    pool = subproc_pool.SubprocPool
    construct = pool.__init__

    @wraps(construct)
    def constructed(self: Any, *arguments: Any, **named: Any) -> None:
        kept = {name: os.environ[name] for name in _LOADED if name in os.environ}
        nsys = os.path.dirname(kept.get("CUDA_INJECTION64_PATH", "")) or None
        preloaded = kept.get("LD_PRELOAD", "").split(":")
        try:
            if nsys:
                for name in kept:
                    del os.environ[name]
                if others := [
                    path for path in preloaded if os.path.dirname(path) not in ("", nsys)
                ]:
                    os.environ["LD_PRELOAD"] = ":".join(others)
            construct(self, *arguments, **named)
        finally:
            os.environ.update(kept)

    pool.__init__ = constructed

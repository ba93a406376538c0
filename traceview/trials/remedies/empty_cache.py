"""Without torch.cuda.empty_cache(): the allocator keeps its memory."""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies.base import ProgramRemedy, RemedyRun, need_gpu, replace_function


def _install(torch: Any, run: RemedyRun) -> None:
    need_gpu(torch, run)

    def make(original: Any) -> Any:
        def empty_cache() -> None:
            if run.on:
                run.applied("empty_cache")
            else:
                original()

        return empty_cache

    replace_function(torch.cuda, "empty_cache", make)


REMEDY = ProgramRemedy(
    name="empty_cache",
    does="Remove torch.cuda.empty_cache()",
    answers=r"Remove torch\.cuda\.empty_cache",
    effect="allocations, releases and the waits in them go",
    install=_install,
    how="remove the call, or call it once before the loop",
    is_switchable=True,
)

"""Record the program with torch.profiler, from its import of torch to its end.

One process is recorded: the first that imports torch, or where the program starts ranks, the first
of them on this host.
"""

from __future__ import annotations

import os
import sys

from .. import notes
from ..import_hooks import after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

SETTINGS = "TRACEVIEW_TORCH_SETTINGS"
"""Variable with the options of the recording, as JSON."""
CLAIMED = "torch.claimed"
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands")


def install(folder: str) -> None:
    """Start recording as soon as the program imports torch."""
    after("torch", lambda torch: _begin(torch, folder))


# Imported only if the program uses torch.


def _begin(torch: ModuleType, folder: str) -> None:
    with notes.noting_errors(folder, "torch.profiler could not be started"):
        import json

        settings = json.loads(os.environ.get(SETTINGS) or "{}")
        is_rank = settings.get("is_rank")
        if _is_launcher() or not (is_rank or _is_first_rank()) or not _claimed(folder):
            return
        rank, ranks = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        if ranks != "1" and not is_rank:
            remedy = "to record all, run traceview record --nproc, or within each rank"
            notes.note(folder, f"only rank {rank} of {ranks} was recorded; {remedy}")
        from . import whole_program

        whole_program.record(torch, folder, settings)


def _is_launcher() -> bool:
    words = getattr(sys, "orig_argv", sys.argv)
    named = any(os.path.basename(word) in _LAUNCHERS for word in (*words[:2], *sys.argv[:1]))
    return named or any(word.startswith(_LAUNCHER_MODULES) for word in words[1:4])


def _is_first_rank() -> bool:
    return os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) == "0"


def _claimed(folder: str) -> bool:
    """Claim the recording for this process; False if another one has it."""
    try:
        os.close(os.open(os.path.join(folder, CLAIMED), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError:
        return False
    return True

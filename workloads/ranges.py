"""NVTX ranges for the programs in this folder.

It lies beside them, as arguments.py does, so that this folder alone can be copied to a GPU host
and each program run from anywhere.
"""

from contextlib import AbstractContextManager, nullcontext

import torch


def annotate(text: str) -> AbstractContextManager[object]:
    """An NVTX range of that name: torch's, else that of the nvtx package, else nothing."""
    if torch.version.cuda:
        # torch takes its first argument as a format string; names that declare work hold braces.
        return torch.cuda.nvtx.range("{}", text)
    try:
        import nvtx
    except ImportError:
        return nullcontext()
    return nvtx.annotate(text)

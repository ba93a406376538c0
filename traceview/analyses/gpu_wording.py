"""Names of GPUs, for the analyses whose findings are not yet rules."""

from __future__ import annotations

from traceview.rules.gpus import gpu_name, gpu_subject

__all__ = ["gpu_name", "gpu_subject"]

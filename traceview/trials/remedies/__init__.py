"""The closed set of remedies that `traceview try` applies to a program."""

from __future__ import annotations

from dataclasses import replace

from traceview.trials.remedies import (
    channels_last,
    deferred_reads,
    loading,
    models,
    optimizers,
    pad_vocabulary,
    settings,
    triton_launch,
)
from traceview.trials.remedies.base import Outcome, ProgramRemedy, RemedyRun, SourceEdit

REMEDIES: tuple[ProgramRemedy, ...] = (
    loading.NUM_WORKERS,
    loading.PIN_MEMORY,
    loading.NON_BLOCKING,
    deferred_reads.REMEDY,
    settings.EMPTY_CACHE,
    settings.MATMUL_PRECISION,
    models.AUTOCAST,
    optimizers.FUSED,
    optimizers.FOREACH,
    optimizers.ZERO_GRAD,
    models.CHECKPOINTS,
    channels_last.REMEDY,
    settings.CUDNN_BENCHMARK,
    pad_vocabulary.REMEDY,
    optimizers.BUCKET_VIEW,
    models.COMPILE,
    models.CUDA_GRAPH,
    triton_launch.REMEDY,
)
"""In the order in which they are tried and, where several are kept, applied together."""
BY_NAME = {remedy.name: remedy for remedy in REMEDIES}


def named(name: str) -> ProgramRemedy:
    """The remedy `name`, or `name:argument`. Raises KeyError, and ValueError for its argument."""
    kind, colon, argument = name.partition(":")
    remedy = BY_NAME[kind]
    if not colon:
        return remedy
    if remedy.takes is None:
        raise ValueError(f"{kind} takes no argument")
    return replace(remedy, name=name, install=remedy.takes(argument), how=f"launch with {argument}")


__all__ = ["BY_NAME", "REMEDIES", "Outcome", "ProgramRemedy", "RemedyRun", "SourceEdit", "named"]

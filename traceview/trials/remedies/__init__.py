"""The closed set of remedies that `traceview try` applies to a program, one file each."""

from __future__ import annotations

from dataclasses import replace

from traceview.trials.remedies import (
    autocast,
    bucket_view,
    channels_last,
    checkpoints,
    compile_model,
    cuda_graph,
    cudnn_benchmark,
    deferred_reads,
    empty_cache,
    foreach,
    fused,
    matmul_precision,
    non_blocking,
    num_workers,
    pad_vocabulary,
    pin_memory,
    triton_launch,
    zero_grad,
)
from traceview.trials.remedies.base import Outcome, ProgramRemedy, RemedyRun, SourceEdit

REMEDIES: tuple[ProgramRemedy, ...] = (
    num_workers.REMEDY,
    pin_memory.REMEDY,
    non_blocking.REMEDY,
    deferred_reads.REMEDY,
    empty_cache.REMEDY,
    matmul_precision.REMEDY,
    autocast.REMEDY,
    fused.REMEDY,
    foreach.REMEDY,
    zero_grad.REMEDY,
    checkpoints.REMEDY,
    channels_last.REMEDY,
    cudnn_benchmark.REMEDY,
    pad_vocabulary.REMEDY,
    bucket_view.REMEDY,
    compile_model.REMEDY,
    cuda_graph.REMEDY,
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

"""Jobs drawn at random: data, tensor, pipeline parallel, sharded; one rank is late, or none.

The same seed gives the same job with and without its fault: every draw is made in either case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.ranks.job_model import BEGIN_NS, FAULTS, GPU_FAULTS, SHAPES, US, Fault, Job
from tests.ranks.rank_programs import run, total_ns
from tests.ranks.simulation import RankTimeline


def balanced(seed: int, shape: str | None = None) -> Job:
    """A job without a fault, but with noise on its GPUs and CPUs."""
    draw = np.random.default_rng((seed, 7))
    chosen = shape or str(draw.choice(SHAPES))
    sizes = {"tensor": (4, 8, 16), "pipeline": (2, 4, 8)}.get(chosen, (2, 4, 8, 16))
    ranks = int(draw.choice(sizes))
    gemm = float(np.exp(draw.uniform(np.log(60 * US), np.log(900 * US))))
    # In a quarter of the jobs the CPU is the limit.
    gemm *= 0.08 if draw.random() < 0.25 else 1.0
    return Job(
        seed=seed,
        shape=chosen,
        ranks=ranks,
        steps=int(draw.integers(12, 25)),
        layers=int(draw.integers(3, 7)),
        split=int(draw.choice([2, 4])),
        microbatches=int(draw.integers(3, 7)),
        gemm_ns=gemm,
        host_ns=float(draw.uniform(5 * US, 40 * US)),
        bytes_per_s=float(draw.choice([300e9, 40e9])),
        layer_bytes=int(draw.choice([1, 4, 16, 32])) << 20,
        jitter=float(draw.uniform(0.003, 0.02)),
        speed_spread=float(draw.uniform(0, 0.006)),
        waits_each_step=bool(draw.random() < 0.7),
        hiccups=float(draw.choice([0.0, 0.02])),
    )


def with_straggler(seed: int, shape: str | None = None, name: str | None = None) -> Job:
    """A job in which one rank, or two, are late by enough to lose steps of the whole job."""
    draw = np.random.default_rng((seed, 11))
    for trial in range(100):
        job = balanced(1_000_000 + 100 * seed + trial, shape)
        usual_ns = total_ns(run(job))
        step_ns = (usual_ns - BEGIN_NS) / job.steps
        fault = _drawn_fault(draw, job, step_ns, name)
        job = replace(job, fault=fault)
        lost_ns = total_ns(run(job)) - usual_ns
        if lost_ns >= (0.4 * step_ns if not fault.period else 0.04 * step_ns * job.steps):
            return job
    raise RuntimeError(f"no job of seed {seed} loses time")


def worth(job: Job) -> int:
    """Time of the whole job that its fault costs: it is run with the fault and without."""
    return total_ns(run(job)) - total_ns(run(replace(job, fault=None)))


def worth_of_steady_steps(job: Job) -> int:
    """The same without the first step, which no report counts."""

    def first_end_ns(lines: Sequence[RankTimeline]) -> int:
        return max(
            end
            for line in lines
            for op, end in zip(line.program.operations, line.end_ns, strict=True)
            if not op.step
        )

    late, usual = run(job), run(replace(job, fault=None))
    return (total_ns(late) - first_end_ns(late)) - (total_ns(usual) - first_end_ns(usual))


def _drawn_fault(draw: np.random.Generator, job: Job, step_ns: float, name: str | None) -> Fault:
    chosen = name or str(draw.choice(FAULTS))
    period = int(draw.choice([1, 1, 2, 3, 4, 0]))
    phase = int(draw.integers(1, period + 1) if period else draw.integers(4, 9))
    count = 2 if job.ranks >= 8 and draw.random() < 0.1 else 1
    late = tuple(int(rank) for rank in draw.choice(job.ranks, count, replace=False))
    share = {1: draw.uniform(0.15, 0.6), 0: draw.uniform(1.0, 2.0)}.get(
        period, draw.uniform(0.4, 1.0)
    )
    if chosen not in GPU_FAULTS and chosen != "slow-cpu":
        return Fault(chosen, late, period, phase, pause_ns=round(share * step_ns))
    # A slower GPU or CPU is so in every step.
    factor = float(draw.uniform(2, 4) if chosen == "slow-cpu" else draw.uniform(1.2, 1.8))
    kind = str(draw.choice(["gemm", "attention"])) if chosen == "slow-class" else ""
    return Fault(chosen, late, phase=0, factor=factor, kernel_class=kind)

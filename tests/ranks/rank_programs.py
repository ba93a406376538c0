"""What each rank of a job runs: data, tensor and expert parallel, a pipeline, sharded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from math import exp

import numpy as np

from tests.ranks.job_model import (
    BACKWARD,
    BEGIN_NS,
    FORWARD,
    GPU_FAULTS,
    LOADING,
    OPTIMIZER,
    PLANTED,
    US,
    Job,
)
from tests.ranks.simulation import (
    COLLECTIVE,
    Operation,
    Pause,
    RankProgram,
    RankTimeline,
    schedule,
)


class _Rank:
    """Writes the program of one rank; all its random draws are here."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank, self.program = job, rank, RankProgram(rank)
        self._draw = np.random.default_rng((job.seed, rank))
        self._speed = 1 + job.speed_spread * abs(self._draw.standard_normal())
        self._calls: dict[object, int] = {}
        self._struck = False

    def _lognormal(self, sigma: float) -> float:
        """What `lognormal(0, sigma)` draws, in half its time."""
        return exp(sigma * self._draw.standard_normal())

    def begin_step(self, step: int) -> None:
        job, fault = self.job, self.job.fault
        self.program.step = step
        self._struck = fault is not None and fault.strikes(self.rank, step)
        hiccup = self._draw.random() < job.hiccups
        taken = self._draw.exponential(0.5) * min(20 * job.host_ns, 3 * job.gemm_ns)
        self.host(10.0, LOADING)
        if hiccup:
            self.program.pause(taken, LOADING)
        self.planted("loading")
        self.program.copy(0.1 * job.gemm_ns)

    def planted(self, *names: str) -> None:
        """Spend the planted pause here, if it is one of these faults."""
        fault = self.job.fault
        if fault and self._struck and fault.name in names:
            self.program.pause(fault.pause_ns, PLANTED[fault.name])

    def host(self, times: float, pause: Pause) -> None:
        fault = self.job.fault
        slow = fault is not None and self._struck and fault.name == "slow-cpu"
        factor = fault.factor if fault is not None and slow else 1.0
        self.program.pause(factor * times * self.job.host_ns * self._lognormal(0.2), pause)

    def compute(self, kind: str, times: float, after: tuple[int, ...] = ()) -> int:
        fault, job = self.job.fault, self.job
        noise = self._speed * self._lognormal(job.jitter)
        if fault and self._struck and fault.name in GPU_FAULTS:
            noise *= fault.factor if fault.kernel_class in ("", kind) else 1.0
        return self.program.compute(kind, times * job.gemm_ns * noise, after)

    def layer(self, times: float, where: Pause, after: tuple[int, ...] = ()) -> int:
        self.host(1.0, where)
        self.compute("gemm", times, after)
        self.host(0.5, where)
        self.compute("attention", 0.6 * times)
        self.host(0.5, where)
        return self.compute("elementwise", 0.2 * times)

    def experts(self, times: float, after: tuple[int, ...]) -> int:
        """Run the experts of this rank on the tokens that the router sent, which vary."""
        return self.compute("gemm", times * self._lognormal(0.05), after)

    def collective(
        self,
        kind: str,
        number: int,
        ranks: Sequence[int],
        size: int,
        *,
        stream: int,
        after: tuple[int, ...] = (),
        peer: int | None = None,
    ) -> int:
        """Issue a part of a collective of these ranks, or of a message to or from a `peer`."""
        pair = None if peer is None else (min(self.rank, peer), max(self.rank, peer))
        count = self._calls[number, pair] = self._calls.get((number, pair), -1) + 1
        transfer = 15 * US + size / self.job.bytes_per_s * 1e9 + self._draw.exponential(2 * US)
        return self.program.add(
            Operation(
                COLLECTIVE,
                0,
                stream,
                kind,
                round(transfer),
                after=after,
                key=(number, pair, count),
                parts=2 if pair else len(ranks),
                communicator=number,
                members=len(ranks),
                own_rank=list(ranks).index(self.rank),
                peer=-1 if peer is None else list(ranks).index(peer),
                bytes=size,
            )
        )

    def end_step(self, after: tuple[int, ...]) -> None:
        self.host(2.0, OPTIMIZER)
        self.compute("optimizer", 0.5, after)
        if self.job.waits_each_step:
            self.program.synchronize()
        self.planted("logging")


def _ddp(rank: _Rank) -> None:
    job, world = rank.job, range(rank.job.ranks)
    for step in range(job.steps):
        rank.begin_step(step)
        for layer in range(job.layers):
            if layer == job.layers // 2:
                rank.planted("sleep", "allocation", "collection")
            rank.layer(1.0, FORWARD)
        reduced = []
        for layer in range(job.layers):
            ready = rank.layer(2.0, BACKWARD)
            if layer % 2 or layer == job.layers - 1:
                size = job.layer_bytes * (1 + layer % 2)
                reduced.append(
                    rank.collective("all-reduce", 1, world, size, stream=20, after=(ready,))
                )
        rank.end_step(tuple(reduced))


def _fsdp(rank: _Rank) -> None:
    job, world = rank.job, range(rank.job.ranks)
    call = partial(rank.collective, number=1, ranks=world, size=job.layer_bytes)
    for step in range(job.steps):
        rank.begin_step(step)
        gathered = call("all-gather", stream=20)
        for layer in range(job.layers):
            now, gathered = gathered, call("all-gather", stream=20)
            if layer == job.layers // 2:
                rank.planted("sleep", "allocation", "collection")
            rank.layer(1.0, FORWARD, after=(now,))
        scattered = []
        for layer in range(job.layers):
            now = gathered
            if layer < job.layers - 1:
                gathered = call("all-gather", stream=20)
            ready = rank.layer(2.0, BACKWARD, after=(now,))
            scattered.append(call("reduce-scatter", stream=20, after=(ready,)))
        rank.end_step(tuple(scattered))


def _tensor(rank: _Rank) -> None:
    """Tensor parallel in groups of `split` neighbours, data parallel across the groups."""
    job, own = rank.job, rank.rank
    first = own // job.split * job.split
    group = range(first, first + job.split)
    data = range(own % job.split, job.ranks, job.split)
    call = partial(rank.collective, "all-reduce")
    for step in range(job.steps):
        rank.begin_step(step)
        after: tuple[int, ...] = ()
        for layer in range(job.layers):
            if layer == job.layers // 2:
                rank.planted("sleep", "allocation", "collection")
            ready = rank.layer(1.0, FORWARD, after=after)
            after = (call(100 + first, group, job.layer_bytes // 4, stream=21, after=(ready,)),)
        reduced = []
        for _ in range(job.layers):
            ready = rank.layer(2.0, BACKWARD, after=after)
            after = (call(100 + first, group, job.layer_bytes // 4, stream=21, after=(ready,)),)
            if len(data) > 1:
                size = job.layer_bytes
                reduced.append(call(200 + own % job.split, data, size, stream=20, after=(ready,)))
        rank.end_step((*after, *reduced))


def _pipeline(rank: _Rank) -> None:
    """A pipeline of `ranks` stages: all microbatches forward, then all backward (GPipe)."""
    job, world = rank.job, range(rank.job.ranks)
    before = rank.rank - 1 if rank.rank else None
    after = rank.rank + 1 if rank.rank + 1 < job.ranks else None
    for step in range(job.steps):
        rank.begin_step(step)
        for part in range(job.microbatches):
            if part == job.microbatches // 2:
                rank.planted("sleep", "allocation", "collection")
            _stage(rank, 1.0, FORWARD, before, after)
        for _ in range(job.microbatches):
            ready = _stage(rank, 2.0, BACKWARD, after, before)
        norm = rank.collective("all-reduce", 2, world, 4096, stream=22, after=(ready,))
        rank.end_step((norm,))


def _stage(rank: _Rank, times: float, where: Pause, source: int | None, target: int | None) -> int:
    """One microbatch through a stage: receive, compute, send."""
    got = () if source is None else (_message(rank, "receive", source),)
    for _ in range(max(rank.job.layers // 2, 1)):
        ready = rank.layer(times, where, after=got)
    if target is not None:
        _message(rank, "send", target, (ready,))
    return ready


def _message(rank: _Rank, kind: str, peer: int, after: tuple[int, ...] = ()) -> int:
    """Exchange with a neighbour: by a communicator of the two, or by that of all stages.

    NCCL runs what one communicator does in order, whatever the streams.
    """
    job, first = rank.job, min(rank.rank, peer)
    size = job.layer_bytes // 2
    if job.split == 2:
        pair = range(first, first + 2)
        return rank.collective(
            kind, 1000 + first, pair, size, stream=30 + first % 2, after=after, peer=peer
        )
    world = range(job.ranks)
    return rank.collective(kind, 1, world, size, stream=30, after=after, peer=peer)


def _expert(rank: _Rank) -> None:
    """Experts on all ranks: tokens go to them and back in each layer, some more to one rank."""
    job, world = rank.job, range(rank.job.ranks)
    call = partial(rank.collective, "all-to-all", 1, world, job.layer_bytes // 2, stream=24)
    for step in range(job.steps):
        rank.begin_step(step)
        after: tuple[int, ...] = ()
        for layer in range(2 * job.layers):
            forward = layer < job.layers
            if layer == job.layers // 2:
                rank.planted("sleep", "allocation", "collection")
            where = FORWARD if forward else BACKWARD
            ready = rank.layer(0.7 if forward else 1.4, where, after=after)
            sent = call(after=(ready,))
            ready = rank.experts(0.5 if forward else 1.0, (sent,))
            after = (call(after=(ready,)),)
        reduced = rank.collective("all-reduce", 2, world, job.layer_bytes, stream=20, after=after)
        rank.end_step((reduced,))


_WRITERS = {"expert": _expert, "ddp": _ddp, "fsdp": _fsdp, "tensor": _tensor, "pipeline": _pipeline}


# Who draws a job has mostly just run it.
@lru_cache(maxsize=2)
def run(job: Job) -> list[RankTimeline]:
    """Run a job: the timeline of each rank, in true time. It is shared: leave it as it is."""
    ranks = [_Rank(job, number) for number in range(job.ranks)]
    for rank in ranks:
        _WRITERS[job.shape](rank)
    return schedule([rank.program for rank in ranks], begin_ns=BEGIN_NS)


def total_ns(lines: Sequence[RankTimeline]) -> int:
    """When the last work of a job ends."""
    return max(max(line.end_ns) for line in lines)

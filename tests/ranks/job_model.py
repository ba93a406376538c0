"""A job of many ranks and what delays some of them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.ranks.simulation import Pause

US, MS = 1_000, 1_000_000
BEGIN_NS = 10_000 * MS
"""True time at which the jobs begin."""
SHAPES = ("ddp", "fsdp", "tensor", "pipeline", "expert")
CPU_FAULTS = ("sleep", "loading", "allocation", "collection", "logging", "slow-cpu")
GPU_FAULTS = ("slow-class", "slow-gpu")
FAULTS = (*CPU_FAULTS, *GPU_FAULTS)
LOADING = Pause("launch-late", "/job/data.py", 40, "batches", "DataLoader.__next__")
FORWARD = Pause("launch-late", "/job/model.py", 20, "forward")
BACKWARD = Pause("launch-late", "/job/train.py", 61, "backward")
OPTIMIZER = Pause("launch-late", "/job/train.py", 70, "step")
PLANTED = {
    "sleep": Pause("launch-late", "/job/train.py", 88, "throttle", "time.sleep"),
    "loading": LOADING,
    "allocation": Pause("allocation", "/job/model.py", 33, "workspace", "torch.empty"),
    "collection": Pause("launch-late", "/job/model.py", 20, "forward"),
    "logging": Pause("launch-late", "/job/log.py", 12, "write"),
    "slow-cpu": FORWARD,
}


@dataclass(frozen=True)
class Fault:
    """What delays some ranks: in steps `phase`, `phase` + `period` …, or in one if `period` is 0.

    A pause of `pause_ns` on the CPU, or kernels of `kernel_class` (all where "") that take
    `factor` times as long.
    """

    name: str
    ranks: tuple[int, ...]
    period: int = 1
    phase: int = 0
    pause_ns: int = 0
    factor: float = 1.0
    kernel_class: str = ""

    def strikes(self, rank: int, step: int) -> bool:
        if rank not in self.ranks:
            return False
        if not self.period:
            return step == self.phase
        return step >= self.phase and (step - self.phase) % self.period == 0


@dataclass(frozen=True)
class Job:
    """A job to run: `split` is the size of its tensor groups; times are those of one layer."""

    seed: int
    shape: str
    ranks: int
    steps: int
    layers: int
    split: int
    microbatches: int
    gemm_ns: float
    host_ns: float
    bytes_per_s: float
    layer_bytes: int
    jitter: float
    speed_spread: float
    waits_each_step: bool
    hiccups: float
    fault: Fault | None = None

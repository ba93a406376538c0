"""Random small recordings with hostile names: several processes, devices, streams and threads."""

import random
from pathlib import Path

import traceview
from tests.build import Export
from tests.contracts.test_hostile_traces import NAMES

KERNELS = (
    *NAMES.values(), "ampere_sgemm_128x64_tn", "flash_fwd_kernel", "vectorized_elementwise_kernel",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "k" * 5_000,
)  # fmt: skip


def random_trace(folder: Path, seed: int) -> traceview.Trace:
    """A recording in a file of its own; equal for equal seeds."""
    chance, export, time = random.Random(seed), Export(), 0
    for step in range(chance.randrange(1, 12)):
        began = time
        for _ in range(chance.randrange(0, 12)):
            time = _operation(export, chance, time)
        name = chance.choice(("step_{}", "{}", "train/epoch_0/batch_{}")).format(step)
        export.range(chance.choice((name, *NAMES.values())), began, time + 1)
        time += chance.choice((0, 1, 10, 100_000, 5_000_000))
    folder = folder / str(seed)
    folder.mkdir()
    return export.load(folder)


def _operation(export: Export, chance: random.Random, time: int) -> int:
    """Add one call and its work on the GPU; returns the time at which the call ends."""
    where = {"device": chance.randrange(2), "process": chance.choice((1, 1, 2))}
    call = (time, time + chance.choice((1, 5_000, 40_000)))
    start = call[0] + chance.choice((1, 2_000, 900_000))
    ran = (start, start + chance.choice((0, 1, 3_000, 2_000_000)))
    kind = chance.randrange(5)
    if kind == 0:
        export.copy(call, ran, source=chance.choice(("pinned", "pageable", "device")), **where)
    elif kind == 1:
        export.sync("cudaStreamSynchronize", *call)
    else:
        name, stream = chance.choice(KERNELS), chance.choice((7, 7, 8, 13))
        export.launch(call, ran, name=name, stream=stream, **where)
    return call[1] + chance.choice((0, 10, 50_000))

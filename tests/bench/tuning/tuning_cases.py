"""The GPU, the key and the block sizes that the tests of tuning share."""

from traceview.trials.bench import BlockSizes, cache_key
from traceview.trials.bench.plan import Machine

H200 = Machine("NVIDIA H200", "9.0", 132, 1, 1, "570", "12.8", "2.11", "3.6", "3.12", False)


KEY = cache_key("autotune", "gelu", 4096, "float32", H200)


def blocks(cache, **kwargs):
    return BlockSizes("gelu", cache=cache, machine=H200, **kwargs)


BLOCK_NS = {128: 90, 256: 60, 512: 30, 1024: 50}


def tuned(cache, run, **kwargs):
    return blocks(cache, candidates=BLOCK_NS, **kwargs).tune(run, 2**20, "float32", trials=3)

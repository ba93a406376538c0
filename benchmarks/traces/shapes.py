"""The shapes of the traces that generator.py makes.

A report should take as long for each of them: what grows with launch configurations, names of
ranges, streams or processes must not be done one by one in Python.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of a made trace; the defaults are a plain training run.

    `ranges_per_launch` are nested inside the range of each launch; `grids` launch sizes per kernel
    name follow from dynamic shapes; `graph_nodes` kernels share one launch call; samples of the
    Python stack are taken once per `sample_every_ns` and thread, 0 for none. The `threads` of a
    process launch at the same time, each on `streams` streams of its own. `shared_sizes` sizes of
    shared memory follow from the size of the launch, and `hashes_in_range_names` per thread and
    level make names that differ in more than a number.
    """

    summary: str
    processes: int = 2
    threads: int = 1
    streams: int = 4
    ranges_per_launch: int = 0
    marks: bool = False
    grids: int = 1
    shared_sizes: int = 1
    id_in_range_names: bool = False
    hashes_in_range_names: int = 0
    graph_nodes: int = 0
    sample_every_ns: int = 0


SHAPES = {
    "plain": Shape("two processes, four streams, four levels of ranges"),
    "dense": Shape(
        "ten more nested ranges and a mark per launch", ranges_per_launch=10, marks=True
    ),
    "operators": Shape("five nested operator ranges per launch", ranges_per_launch=4),
    "dynamic": Shape("a launch configuration of its own for nearly each launch", grids=1_011),
    "literal-names": Shape("an id in the name of each range", id_in_range_names=True),
    "streams": Shape("1,000 streams", streams=500),
    "processes": Shape("64 processes, each on its own GPU", processes=64),
    "graphs": Shape("CUDA graphs of 1,000 nodes", graph_nodes=1_000),
    "python-samples": Shape(
        "a sample of each thread's Python stack per ms", sample_every_ns=1_000_000
    ),
    "combined": Shape(
        "four threads at once, 97,000 launch configurations, 130,000 names of ranges",
        processes=1,
        threads=4,
        grids=1_013,
        shared_sizes=1_013,
        hashes_in_range_names=15_000,
    ),
}

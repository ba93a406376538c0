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
    Python stack are taken once per `sample_every_ns` and thread, 0 for none.
    """

    summary: str
    processes: int = 2
    streams: int = 4
    ranges_per_launch: int = 0
    marks: bool = False
    grids: int = 1
    id_in_range_names: bool = False
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
}

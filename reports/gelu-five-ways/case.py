"""GELU in six ways, beside the five of the lecture."""

from collections.abc import Mapping

from five_ways import MS, FiveWays
from gallery import Case, Said, of_workload, times
from matplotlib.axes import Axes

LECTURE_NS = {
    "manual": 8.1 * MS,
    "torch": 1.1 * MS,
    "cuda-scalar": 1.8 * MS,
    "triton": 1.85 * MS,
    "torch.compile": 1.47 * MS,
}
# 0.5·x, c·x, ·x, ·x, x+, c·, tanh, 1+, and the last product: reads and writes of each kernel.
MANUAL_PASSES = (2, 2, 3, 3, 3, 2, 2, 2, 3)


def compared(said: Mapping[str, Said]) -> FiveWays:
    return FiveWays(said["gelu"], LECTURE_NS, sum(MANUAL_PASSES))


def widths(found: FiveWays) -> str:
    """The two CUDA kernels, which differ in nothing but the width of their accesses."""
    costs = found.said.rows("load-widths", "costs")
    bits = {row["name"]: row["load_bits"] for row in costs}
    ratio = found.ways["cuda-scalar"].ns / found.ways["cuda-vector"].ns
    return (
        f"`cuda-scalar` loads {bits['gelu_scalar']} bits at a time and `cuda-vector` "
        f"{bits['gelu_vector']}: the same traffic in {times(ratio)} the time. See "
        "[vector-width](../vector-width/README.md)."
    )


def blocks(said: Mapping[str, Said]) -> Mapping[str, str]:
    found = compared(said)
    return {"table": found.table(), "answer": found.answer([widths(found)])}


def draw(said: Mapping[str, Said], axes: Axes) -> None:
    compared(said).draw(axes)


CASE = Case(
    recordings={"gelu": of_workload("gelu")},
    blocks=blocks,
    draw=draw,
    ranges=("step_*",),
)

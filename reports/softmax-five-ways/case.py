"""Softmax in six ways, beside the four of the lecture."""

from collections.abc import Mapping

from five_ways import MS, FiveWays
from gallery import Case, Said, of_workload, terabytes, times
from matplotlib.axes import Axes

LECTURE_NS = {"manual": 3.7 * MS, "torch": 1.5 * MS, "triton": 1.9 * MS, "torch.compile": 1.3 * MS}
# Maximum, difference, exponential, sum, quotient: reads and writes of the matrix by each kernel.
MANUAL_PASSES = (1, 2, 2, 1, 2)


def compared(said: Mapping[str, Said]) -> FiveWays:
    return FiveWays(said["softmax"], LECTURE_NS, sum(MANUAL_PASSES))


def fused_and_slow(found: FiveWays) -> str:
    one, torch = found.ways["cuda-row-per-thread"], found.ways["torch"]
    return (
        f"One kernel alone is no remedy: `cuda-row-per-thread` is one, and takes "
        f"{times(one.ns / torch.ns)} the time of `torch` ({terabytes(one.bytes_per_s)}). Its "
        "neighbouring threads are a row apart, so that each load of a warp touches 32 sectors and "
        "uses 4 of the 32 bytes of each."
    )


def below_the_peak(found: FiveWays) -> str:
    torch, triton = (found.ways[name].bytes_per_s for name in ("torch", "triton"))
    (kernel,) = {row["short_name"] for row in found.said.kernels_within("step_*/torch {*")}
    return (
        f"`torch` is one kernel too (`{kernel}`), and reaches {100 * torch / found.peak:.0f} % of "
        f"the memory's peak at rows of this length; `triton`, with a row in the registers of a "
        f"block, {100 * triton / found.peak:.0f} %."
    )


def blocks(said: Mapping[str, Said]) -> Mapping[str, str]:
    found = compared(said)
    points = [below_the_peak(found), fused_and_slow(found)]
    return {"table": found.table(), "answer": found.answer(points)}


def draw(said: Mapping[str, Said], axes: Axes) -> None:
    compared(said).draw(axes)


CASE = Case(
    recordings={"softmax": of_workload("softmax")},
    blocks=blocks,
    draw=draw,
    ranges=("step_*",),
)

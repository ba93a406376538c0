"""GELU in six versions, and the lecture's times of five."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from gallery.case import Case, RecordingReport
from gallery.five_ways import MS, VersionComparison
from gallery.markdown import times
from gallery.recording import recording

LECTURE_NS = {
    "manual": 8.1 * MS,
    "torch": 1.1 * MS,
    "cuda-scalar": 1.8 * MS,
    "triton": 1.85 * MS,
    "torch.compile": 1.47 * MS,
}
# 0.5·x, c·x, ·x, ·x, x+, c·, tanh, 1+, and the last product: reads and writes of each kernel.
MANUAL_PASSES = (2, 2, 3, 3, 3, 2, 2, 2, 3)


def compare(reports: Mapping[str, RecordingReport]) -> VersionComparison:
    return VersionComparison(reports["gelu"], LECTURE_NS, sum(MANUAL_PASSES))


def width_point(compared: VersionComparison) -> str:
    """The two CUDA kernels, which differ only in the width of their accesses."""
    costs = compared.recorded.rows("load-widths", "costs")
    bits = {row["name"]: row["load_bits"] for row in costs}
    ratio = compared.versions["cuda-scalar"].ns / compared.versions["cuda-vector"].ns
    return (
        f"`cuda-scalar` loads {bits['gelu_scalar']} bits per instruction and `cuda-vector` "
        f"{bits['gelu_vector']}. The traffic is the same; the narrow loads take {times(ratio)} as "
        "long. See [vector-width](../vector-width/README.md)."
    )


def blocks(reports: Mapping[str, RecordingReport]) -> Mapping[str, str]:
    compared = compare(reports)
    return {"table": compared.table(), "answer": compared.answer([width_point(compared)])}


def draw(reports: Mapping[str, RecordingReport], axes: Axes) -> None:
    compare(reports).draw(axes)


CASE = Case(
    recordings={"gelu": recording("gelu")},
    blocks=blocks,
    draw=draw,
    ranges=("step_*",),
)

"""Softmax in six versions, and the lecture's times of four."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from gallery.case import Case, RecordingReport
from gallery.five_ways import MS, VersionComparison
from gallery.markdown import terabytes, times
from gallery.recording import recording

LECTURE_NS = {"manual": 3.7 * MS, "torch": 1.5 * MS, "triton": 1.9 * MS, "torch.compile": 1.3 * MS}
# Maximum, difference, exponential, sum, quotient: reads and writes of the matrix by each kernel.
MANUAL_PASSES = (1, 2, 2, 1, 2)


def compare(reports: Mapping[str, RecordingReport]) -> VersionComparison:
    return VersionComparison(reports["softmax"], LECTURE_NS, sum(MANUAL_PASSES))


def coalescing_point(compared: VersionComparison) -> str:
    slow, torch = compared.versions["cuda-row-per-thread"], compared.versions["torch"]
    return (
        f"Fusing into one kernel is not enough: `cuda-row-per-thread` is one kernel and takes "
        f"{times(slow.ns / torch.ns)} as long as `torch` ({terabytes(slow.bytes_per_s)}). "
        "Neighbouring threads are a row apart, so each load of a warp touches 32 sectors and uses "
        "4 of the 32 bytes of each."
    )


def peak_point(compared: VersionComparison) -> str:
    torch, triton = (compared.versions[name].bytes_per_s for name in ("torch", "triton"))
    (kernel,) = {row["short_name"] for row in compared.recorded.kernels_within("step_*/torch {*")}
    return (
        f"`torch` is a single kernel too (`{kernel}`) and reaches "
        f"{100 * torch / compared.peak:.0f} % of peak bandwidth at this row length. `triton` keeps "
        f"a row in the registers of one block and reaches {100 * triton / compared.peak:.0f} %."
    )


def blocks(reports: Mapping[str, RecordingReport]) -> Mapping[str, str]:
    compared = compare(reports)
    points = [peak_point(compared), coalescing_point(compared)]
    return {"table": compared.table(), "answer": compared.answer(points)}


def draw(reports: Mapping[str, RecordingReport], axes: Axes) -> None:
    compare(reports).draw(axes)


CASE = Case(
    recordings={"softmax": recording("softmax")},
    blocks=blocks,
    draw=draw,
    ranges=("step_*",),
)

"""torch.cdist: the kernels of one call."""

import re
from collections.abc import Mapping

from matplotlib.axes import Axes

from gallery.case import Case, RecordingReport
from gallery.markdown import numbered, table
from gallery.recording import recording
from traceview.base.hardware import rates_of
from traceview.base.units import duration
from traceview.base.vocabulary.libraries import tile

SIDE = 2048
GEMM = "one GEMM: every squared distance"
# What each kernel does, by the operation in its name.
PURPOSES = (
    ("gemm|nvjet|cutlass", GEMM),
    ("CatArrayBatchedCopy", "appends the sums and ones to each matrix"),
    ("pow_tensor_scalar", "squares each element"),
    ("sum_functor", "sums the squares of each row"),
    ("MulFunctor", "multiplies x by −2"),
    ("launch_clamp_scalar", "clamps negative rounding errors to 0"),
    ("sqrt_kernel", "takes the square root"),
    ("FillFunctor", "fills a column with ones"),
)


def purpose(name: str) -> str:
    """The purpose of a kernel in cdist. Raises StopIteration for an unknown one."""
    return next(text for pattern, text in PURPOSES if re.search(pattern, name))


def kernels(recorded: RecordingReport) -> list[dict]:
    """The kernels of cdist, longest first, with calls and time per call of cdist."""
    steps = len(recorded.range_rows(r"step_\d+/cdist"))
    return [
        {
            **row,
            "purpose": purpose(row["name"]),
            "launches": row["calls"] / steps,
            "ns": row["total_ns"] / steps,
        }
        for row in recorded.kernels_within("step_*/cdist")
    ]


def kernel_table(recorded: RecordingReport) -> str:
    parts = kernels(recorded)
    total_ns = sum(part["ns"] for part in parts)
    rows = [
        [
            part["purpose"],
            part["label"],
            f"{part['launches']:g}",
            duration(part["ns"]),
            f"{100 * part['ns'] / total_ns:.1f} %",
        ]
        for part in parts
    ]
    launches = sum(part["launches"] for part in parts)
    total = ["**all**", "", f"{launches:g}", duration(total_ns), "100 %"]
    return table(["what it does", "kernel", "launches", "time", "share"], [*rows, total], left=2)


def answer(recorded: RecordingReport) -> str:
    parts = kernels(recorded)
    total_ns = sum(part["ns"] for part in parts)
    launches = sum(part["launches"] for part in parts)
    gemm = next(part for part in parts if part["purpose"] == GEMM)
    flop = 2 * SIDE * SIDE * (SIDE + 2)
    rate = flop / (gemm["ns"] / 1e9)
    gpu = recorded.trace.run["gpu"].split(", ")[0]
    peak = rates_of(gpu).flop_per_s["fp32"]
    shape = tile(gemm["short_name"])
    return numbered(
        [
            f"One call launches {launches:g} kernels of {len(parts)} kinds and takes "
            f"{duration(total_ns)}. It uses |x − y|² = |x|² + |y|² − 2 x·y: PyTorch appends the "
            f"squared norms to the matrices, so that one GEMM computes all of it.",
            f"The GEMM takes {100 * gemm['ns'] / total_ns:.0f} %. Its name says that the tile is "
            f"{shape.rows} × {shape.columns} and that it multiplies on CUDA cores (`ffma`), not on "
            f"tensor cores.",
            f"Its {flop / 1e9:.1f} GFLOP (2 · {SIDE} · {SIDE} · {SIDE + 2}) in "
            f"{duration(gemm['ns'])} are {rate / 1e12:.1f} TFLOP/s, {100 * rate / peak:.0f} % "
            f"of the fp32 peak in the data sheet ({peak / 1e12:.1f}).",
            f"The other {launches - gemm['launches']:g} kernels take "
            f"{duration(total_ns - gemm['ns'])} together. Removing all of them would make the call "
            f"at most {total_ns / gemm['ns']:.2f} times as fast.",
        ]
    )


def blocks(reports: Mapping[str, RecordingReport]) -> Mapping[str, str]:
    recorded = reports["cdist"]
    return {"table": kernel_table(recorded), "answer": answer(recorded)}


def draw(reports: Mapping[str, RecordingReport], axes: Axes) -> None:
    parts = kernels(reports["cdist"])[::-1]
    bars = axes.barh([part["purpose"] for part in parts], [part["ns"] / 1e3 for part in parts])
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.set(xlabel="time per call of torch.cdist (µs)")


CASE = Case(
    recordings={"cdist": recording("cdist")},
    blocks=blocks,
    draw=draw,
    ranges=("step_*",),
)

"""GELU written twice in CUDA C++: one element per thread and load, or four."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from gallery.case import Case, RecordingReport
from gallery.markdown import numbered, table, terabytes, times
from gallery.recording import recording
from traceview.base.units import duration

SOURCES = {
    "gelu_scalar": "CUDA C++, one `float` per thread",
    "gelu_vector": "CUDA C++, one `float4` per thread",
    "gelu_kernel": "Triton",
    "copy_kernel": "Triton, a copy without arithmetic",
}


def costs(recorded: RecordingReport) -> dict[str, dict]:
    """The row of `load-widths` for each kernel."""
    return {name: recorded.row("load-widths", "costs", name=name) for name in SOURCES}


def kernel_table(recorded: RecordingReport) -> str:
    rows = []
    for name, cost in costs(recorded).items():
        loads = [
            row["instructions"]
            for row in recorded.rows("load-widths", "kernels")
            if row["name"] == name and row["kind"] == "load" and row["level"] == "sass"
        ]
        launch = recorded.row("wave-quantization", "kernels", short_name=name)
        rows.append(
            [
                f"`{name}`",
                SOURCES[name],
                f"{sum(loads)} × {cost['load_bits']} bits",
                f"{launch['theoretical_occupancy_pct']:.0f} %",
                duration(cost["total_ns"] / cost["calls"]),
                terabytes(cost["bytes_per_s"]),
                f"{100 * cost['bytes_per_s'] / cost['peak_bytes_per_s']:.0f} %",
            ]
        )
    heads = ["kernel", "written in", "loads per thread", "occupancy", "time per call", "bandwidth"]
    return table([*heads, "of peak"], rows, left=3)


def answer(recorded: RecordingReport) -> str:
    cost = costs(recorded)
    narrow, wide, copy = cost["gelu_scalar"], cost["gelu_vector"], cost["copy_kernel"]
    rates = {name: recorded.row("roofline", "kernels", short_name=name) for name in SOURCES}
    gflop = [rates[name]["flop"] / rates[name]["calls"] / 1e9 for name in SOURCES]
    call_bytes = narrow["bytes"] / narrow["calls"]
    ratio = times(narrow["total_ns"] / wide["total_ns"])
    return numbered(
        [
            f"Both move {call_bytes / 1e9:.2f} GB per call and do the same arithmetic "
            f"({gflop[0]:.2f} and {gflop[1]:.2f} GFLOP). The one with {narrow['load_bits']}-bit "
            f"loads takes {ratio} as long.",
            f"It is not the arithmetic: `gelu_vector` does as much and is within "
            f"{abs(100 * (wide['total_ns'] / copy['total_ns'] - 1)):.1f} % of a plain copy.",
            "It is not occupancy, which is full for all four, nor coalescing: neighbouring "
            "threads read neighbouring words in both.",
            f"That leaves the bytes in flight per SM, which no recording shows. With every thread "
            f"waiting for one load of {narrow['load_bits'] // 8} bytes, an SM has "
            f"{wide['load_bits'] // narrow['load_bits']} times fewer bytes in flight than with "
            f"loads of {wide['load_bits'] // 8}.",
            f"`load-widths` reads the width from the machine code ({narrow['level'].upper()}), "
            f"names the source line and bounds the gain. At peak bandwidth a call would take "
            f"{duration(narrow['bound_ns'] / narrow['calls'])}, so at most "
            f"{times(narrow['total_ns'] / narrow['bound_ns'])} can be gained. Measured: {ratio}.",
            f"The report says: *{recorded.finding('load-widths', 'gelu_scalar')}*",
        ]
    )


def blocks(reports: Mapping[str, RecordingReport]) -> Mapping[str, str]:
    return {"table": kernel_table(reports["rates"]), "answer": answer(reports["rates"])}


def draw(reports: Mapping[str, RecordingReport], axes: Axes) -> None:
    cost = costs(reports["rates"])
    names = list(reversed(cost))
    rates = [cost[name]["bytes_per_s"] / 1e12 for name in names]
    labels = [f"{name}: {cost[name]['load_bits']} bits" for name in names]
    bars = axes.barh(labels, rates, color=["C1" if "scalar" in name else "C0" for name in names])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    peak = cost["gelu_scalar"]["peak_bytes_per_s"] / 1e12
    axes.axvline(peak, color="0.4", linestyle="--", linewidth=1)
    axes.text(peak, len(names) - 0.45, f"peak {peak:.2f} ", ha="right", color="0.4")
    axes.set(xlabel="memory bandwidth (TB/s)")


CASE = Case(
    recordings={"rates": recording("rates")},
    blocks=blocks,
    draw=draw,
    size=(7, 2.4),
)

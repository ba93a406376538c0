"""GELU written twice in CUDA C++: one element a thread and load, or four."""

from collections.abc import Mapping

from gallery import DATA, Case, Recording, Said, numbered, table, terabytes, times
from matplotlib.axes import Axes

from traceview.units import duration

KERNELS = ("gelu_scalar", "gelu_vector", "gelu_kernel", "copy_kernel")
WHAT = {
    "gelu_scalar": "CUDA C++, a `float` a thread",
    "gelu_vector": "CUDA C++, a `float4` a thread",
    "gelu_kernel": "Triton",
    "copy_kernel": "Triton, a copy and no arithmetic",
}


def costs(said: Said) -> dict[str, dict]:
    """What `load-widths` says of each kernel."""
    return {name: said.row("load-widths", "costs", name=name) for name in KERNELS}


def compared(said: Said) -> str:
    rows = []
    for name, cost in costs(said).items():
        loads = [
            row
            for row in said.rows("load-widths", "kernels")
            if row["name"] == name and row["kind"] == "load" and row["level"] == "sass"
        ]
        blocks = said.row("wave-quantization", "kernels", short_name=name)
        rows.append(
            [
                f"`{name}`",
                WHAT[name],
                f"{sum(row['instructions'] for row in loads)} × {cost['load_bits']} bits",
                f"{blocks['theoretical_occupancy_pct']:.0f} %",
                duration(cost["total_ns"] / cost["calls"]),
                terabytes(cost["bytes_per_s"]),
                f"{100 * cost['bytes_per_s'] / cost['peak_bytes_per_s']:.0f} %",
            ]
        )
    heads = ["kernel", "written in", "loads of a thread", "occupancy", "a call", "it moves"]
    return table([*heads, "of the memory's peak"], rows, left=3)


def answer(said: Said) -> str:
    cost = costs(said)
    narrow, wide, copy = cost["gelu_scalar"], cost["gelu_vector"], cost["copy_kernel"]
    rates = {name: said.row("roofline", "kernels", short_name=name) for name in KERNELS}
    gflop = [rates[name]["flop"] / rates[name]["calls"] / 1e9 for name in KERNELS]
    each = narrow["bytes"] / narrow["calls"]
    return numbered(
        [
            f"Both move {each / 1e9:.2f} GB a call and do the same arithmetic: {gflop[0]:.2f} and "
            f"{gflop[1]:.2f} GFLOP. The one with "
            f"{narrow['load_bits']}-bit loads takes "
            f"{times(narrow['total_ns'] / wide['total_ns'])} as long.",
            f"It is not the arithmetic: `gelu_vector` does as much and is within "
            f"{abs(100 * (wide['total_ns'] / copy['total_ns'] - 1)):.1f} % of a plain copy.",
            "It is not the occupancy, which is full for all four, and not coalescing: neighbouring "
            "threads read neighbouring words in both.",
            "What is left is how much each SM has asked for at a time, which no recording shows: "
            f"full of threads that wait for one load of {narrow['load_bits'] // 8} bytes each, it "
            f"has {wide['load_bits'] // narrow['load_bits']} times fewer bytes on their way than "
            f"with {wide['load_bits'] // 8}.",
            f"`load-widths` reads the width in the machine code ({narrow['level'].upper()}), names "
            f"the line, and bounds the win: at the memory's peak a call would take "
            f"{duration(narrow['bound_ns'] / narrow['calls'])}, so "
            f"{times(narrow['total_ns'] / narrow['bound_ns'])} at most. Measured: "
            f"{times(narrow['total_ns'] / wide['total_ns'])}.",
            f"In its words: *{said.finding('load-widths', 'gelu_scalar')}*.",
        ]
    )


def blocks(said: Mapping[str, Said]) -> Mapping[str, str]:
    rates = said["rates"]
    return {"table": compared(rates), "answer": answer(rates)}


def draw(said: Mapping[str, Said], axes: Axes) -> None:
    cost = costs(said["rates"])
    names = list(reversed(cost))
    rates = [cost[name]["bytes_per_s"] / 1e12 for name in names]
    labels = [f"{name}: {cost[name]['load_bits']} bits" for name in names]
    bars = axes.barh(labels, rates, color=["C1" if "scalar" in name else "C0" for name in names])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    peak = cost["gelu_scalar"]["peak_bytes_per_s"] / 1e12
    axes.axvline(peak, color="0.4", linestyle="--", linewidth=1)
    axes.text(peak, len(names) - 0.45, f"peak {peak:.2f} ", ha="right", color="0.4")
    axes.set(xlabel="moved to and from memory (TB/s)")


CASE = Case(
    recordings={"rates": Recording(f"{DATA}/rates.sqlite.xz", f"{DATA}/rates.py")},
    blocks=blocks,
    draw=draw,
    size=(7, 2.4),
)

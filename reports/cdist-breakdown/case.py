"""torch.cdist: what one call is made of."""

import re
from collections.abc import Mapping

from gallery import Case, Said, numbered, of_workload, table
from matplotlib.axes import Axes

from traceview.facts.operations.gemm_names import tile
from traceview.hardware import rates_of
from traceview.units import duration

SIDE = 2048
PRODUCT = "one product, which gives every squared distance"
# What each kernel does, by the operation in its name.
WORK = (
    ("gemm|nvjet|cutlass", PRODUCT),
    ("CatArrayBatchedCopy", "puts the sums and ones beside each matrix"),
    ("pow_tensor_scalar", "squares every element"),
    ("sum_functor", "sums the squares of each row"),
    ("MulFunctor", "multiplies x by −2"),
    ("launch_clamp_scalar", "cuts off what rounding made negative"),
    ("sqrt_kernel", "takes the root"),
    ("FillFunctor", "makes a column of ones"),
)


def work(name: str) -> str:
    """What a kernel of that name does in cdist. Raises StopIteration if that is not known."""
    return next(told for pattern, told in WORK if re.search(pattern, name))


def parts(said: Said) -> list[dict]:
    """The kernels of cdist, most time first, with their calls and time in one call of it."""
    steps = len(said.in_ranges(r"step_\d+/cdist"))
    return [
        {
            **row,
            "work": work(row["name"]),
            "each": row["calls"] / steps,
            "ns": row["total_ns"] / steps,
        }
        for row in said.kernels_within("step_*/cdist")
    ]


def breakdown(said: Said) -> str:
    found = parts(said)
    whole = sum(part["ns"] for part in found)
    rows = [
        [
            part["work"],
            f"`{part['label'][:44]}`",
            f"{part['each']:g}",
            duration(part["ns"]),
            f"{100 * part['ns'] / whole:.1f} %",
        ]
        for part in found
    ]
    total = ["**all**", "", f"{sum(part['each'] for part in found):g}", duration(whole), "100 %"]
    return table(["it", "kernel", "calls", "takes", "share"], [*rows, total], left=2)


def answer(said: Said) -> str:
    found = parts(said)
    whole = sum(part["ns"] for part in found)
    product = next(part for part in found if part["work"] == PRODUCT)
    flop = 2 * SIDE * SIDE * (SIDE + 2)
    rate = flop / (product["ns"] / 1e9)
    gpu = said.trace.run["gpu"].split(", ")[0]
    peak = rates_of(gpu).flop_per_s["fp32"]
    rest = whole - product["ns"]
    shape = tile(product["short_name"])
    return numbered(
        [
            f"One call is {sum(part['each'] for part in found):g} kernels of {len(found)} kinds, "
            f"{duration(whole)} in all: |x − y|² = |x|² + |y|² − 2 x·y, and PyTorch puts the "
            f"squares into the matrices so that one product gives the whole of it.",
            f"The product takes {100 * product['ns'] / whole:.0f} %. Its name tells the tile, "
            f"{shape.rows} × {shape.columns}, and `ffma`: the fp32 units, not the tensor cores.",
            f"Its {flop / 1e9:.1f} GFLOP (2 · {SIDE} · {SIDE} · {SIDE + 2}) in "
            f"{duration(product['ns'])} are {rate / 1e12:.1f} TFLOP/s, {100 * rate / peak:.0f} % "
            f"of the {peak / 1e12:.1f} that the data sheet gives for fp32.",
            f"The other {sum(part['each'] for part in found) - product['each']:g} kernels take "
            f"{duration(rest)} together. Removing all of them would make the call "
            f"{whole / product['ns']:.2f} times as fast, and no more.",
        ]
    )


def blocks(said: Mapping[str, Said]) -> Mapping[str, str]:
    cdist = said["cdist"]
    return {"table": breakdown(cdist), "answer": answer(cdist)}


def draw(said: Mapping[str, Said], axes: Axes) -> None:
    found = parts(said["cdist"])[::-1]
    bars = axes.barh([part["work"] for part in found], [part["ns"] / 1e3 for part in found])
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.set(xlabel="one call of torch.cdist (µs)")


CASE = Case(
    recordings={"cdist": of_workload("cdist")},
    blocks=blocks,
    draw=draw,
    ranges=("step_*",),
)

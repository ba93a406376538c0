"""fp16 GEMMs over their size: a sawtooth of throughput."""

import math
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from matplotlib.axes import Axes

import traceview
from gallery.case import Case, RecordingReport
from gallery.markdown import numbered, table
from gallery.recording import GEMM_SIZES, recording
from traceview.base.units import duration
from traceview.base.vocabulary.libraries import tile


@cache
def gemms(recorded: RecordingReport) -> list[dict]:
    """Per size: kernel, time (median of the steps), tiles, tile waves, fraction of slots used.

    The blocks of a persistent kernel take tile after tile until none is left, so the number of
    tile waves is tiles ÷ resident blocks, rounded up.
    """
    sms = next(recorded.trace.devices.rows())["sm_count"]
    sizes = []
    for side in GEMM_SIZES:
        ranges = f"step_*/float16_{side}"
        inside = traceview.analyze(recorded.trace, "wave-quantization", ranges=ranges)
        kernel = next(inside.outcomes["wave-quantization"].tables["kernels"].rows())
        shape = tile(kernel["short_name"])
        tiles = math.ceil(side / shape.rows) * math.ceil(side / shape.columns)
        slots = sms * kernel["blocks_per_sm"]
        resident = min(kernel["blocks"], slots)
        waves = math.ceil(tiles / resident)
        ns = recorded.range_ns(rf"step_\d+/float16_{side}")
        sizes.append(
            {
                "side": side,
                "kernel": kernel["short_name"],
                "ns": ns,
                "flop_per_s": 2 * side**3 / (ns / 1e9),
                "tile": f"{shape.columns} × {shape.rows}",
                "tiles": tiles,
                "resident": resident,
                "waves": waves,
                "used_fraction": tiles / (waves * slots),
            }
        )
    return sizes


def size_table(recorded: RecordingReport) -> str:
    heads = ["size", "tile", "tiles", "blocks", "tile waves", "slots used", "time", "TFLOP/s"]
    rows = [
        [
            f"{gemm['side']:,}",
            gemm["tile"],
            f"{gemm['tiles']:,}",
            str(gemm["resident"]),
            str(gemm["waves"]),
            f"{100 * gemm['used_fraction']:.0f} %",
            duration(gemm["ns"]),
            teraflops(gemm["flop_per_s"]),
        ]
        for gemm in gemms(recorded)
    ]
    return table(heads, rows, left=0)


def teraflops(flop_per_s: float) -> str:
    return f"{flop_per_s / 1e12:.0f}"


def span(rates: list[float]) -> str:
    return f"{teraflops(min(rates))} to {teraflops(max(rates))}"


def answer(recorded: RecordingReport) -> str:
    sizes = gemms(recorded)
    steps = list(pairwise(sizes))
    before, after = min(steps, key=lambda pair: pair[1]["flop_per_s"] / pair[0]["flop_per_s"])
    fastest = max(sizes, key=lambda gemm: gemm["flop_per_s"])
    slower = sum(b["flop_per_s"] < a["flop_per_s"] for a, b in steps)
    several = [gemm for gemm in sizes if gemm["waves"] > 1]
    adjusted = [gemm["flop_per_s"] / gemm["used_fraction"] for gemm in several]
    work = (after["side"] / before["side"]) ** 3
    return numbered(
        [
            f"The fastest size is {fastest['side']:,} at {teraflops(fastest['flop_per_s'])} "
            f"TFLOP/s. Larger is not faster: throughput falls at {slower} of {len(steps)} steps to "
            f"the next size.",
            f"The largest drop is from {before['side']:,} to {after['side']:,}: "
            f"{100 * (work - 1):.0f} % more work takes "
            f"{100 * (after['ns'] / before['ns'] - 1):.0f} % longer "
            f"({teraflops(before['flop_per_s'])} to {teraflops(after['flop_per_s'])} TFLOP/s, "
            f"{after['flop_per_s'] / before['flop_per_s']:.2f} times). Both run in "
            f"{before['waves']} tile waves, but {before['tiles']} tiles use "
            f"{100 * before['used_fraction']:.0f} % of the block slots and {after['tiles']} use "
            f"{100 * after['used_fraction']:.0f} %, "
            f"{after['used_fraction'] / before['used_fraction']:.2f} times as much.",
            f"That is the sawtooth. Across the {len(several)} sizes with more than one tile wave, "
            f"throughput ranges from {span([gemm['flop_per_s'] for gemm in several])} TFLOP/s; "
            f"divided by the fraction of slots used, from {span(adjusted)}. Smaller sizes also "
            f"lose to small tiles and to start-up.",
            "cuBLAS changes the tile from one size to the next, and it often launches no more "
            "blocks than there are SMs, each of which takes tile after tile. Such a grid is one "
            "full wave and shows no loss, but its tiles do. The kernel's name gives their size, "
            "and the shapes of the tensors (`--shapes`) give their number. The table `tiles` of "
            f"wave-quantization counts {after['tiles']} tiles of {after['tile']} for "
            f"{after['resident']} persistent blocks, so the last of {after['waves']} tile waves "
            f"leaves {100 * (1 - after['used_fraction']):.0f} % of all tile slots unused.",
        ]
    )


def blocks(reports: Mapping[str, RecordingReport]) -> Mapping[str, str]:
    return {"table": size_table(reports["sizes"]), "answer": answer(reports["sizes"])}


def draw(reports: Mapping[str, RecordingReport], axes: Axes) -> None:
    sizes = gemms(reports["sizes"])
    several = [gemm for gemm in sizes if gemm["waves"] > 1]
    level = max(gemm["flop_per_s"] / gemm["used_fraction"] for gemm in several) / 1e12
    axes.plot(
        [gemm["side"] for gemm in several],
        [level * gemm["used_fraction"] for gemm in several],
        color="0.6",
        label=f"fraction of slots used × {level:.0f}",
    )
    sides, rates = zip(*((gemm["side"], gemm["flop_per_s"] / 1e12) for gemm in sizes), strict=True)
    axes.plot(sides, rates, "o-", markersize=4, label="measured")
    axes.set(xlabel="side of the fp16 matrices", ylabel="TFLOP/s", ylim=(0, None))
    axes.set_xticks(range(1024, 4097, 512))
    axes.legend(frameon=False, loc="lower right")


CASE = Case(
    recordings={"sizes": recording("sizes")},
    blocks=blocks,
    draw=draw,
    ranges=("step_*",),
)

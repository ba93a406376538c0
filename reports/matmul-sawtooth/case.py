"""Half-precision matrix products over their size: a sawtooth of throughput."""

import math
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from gallery import Case, Recording, Said, numbered, table
from matplotlib.axes import Axes

import traceview
from traceview.facts.operations.gemm_names import tile
from traceview.units import duration

SIZES = tuple(range(1024, 4097, 128))


@cache
def products(said: Said) -> list[dict]:
    """Of each size: its kernel, time (median of the steps), tiles, and the share of SMs they fill.

    As a kernel's blocks take tiles until none is left, tiles ÷ blocks at once, rounded up, is the
    number of rounds.
    """
    sms = next(said.trace.devices.rows())["sm_count"]
    found = []
    for side in SIZES:
        inside = traceview.analyze(said.trace, "wave-quantization", ranges=f"step_*/float16_{side}")
        kernel = next(inside.outcomes["wave-quantization"].tables["kernels"].rows())
        cut = tile(kernel["short_name"])
        tiles = math.ceil(side / cut.rows) * math.ceil(side / cut.columns)
        at_once = min(kernel["blocks"], sms * kernel["blocks_per_sm"])
        rounds = math.ceil(tiles / at_once)
        ns = said.range_ns(rf"step_\d+/float16_{side}")
        found.append(
            {"side": side, "ns": ns, "rate": 2 * side**3 / (ns / 1e9), "tiles": tiles}
            | {"cut": f"{cut.columns} × {cut.rows}", "at_once": at_once, "rounds": rounds}
            | {"filled": tiles / (rounds * sms * kernel["blocks_per_sm"])}
        )
    return found


def compared(said: Said) -> str:
    heads = ["size", "tile", "tiles", "blocks", "rounds", "places filled", "takes", "TFLOP/s"]
    rows = [
        [
            *(f"{one['side']:,}", one["cut"], f"{one['tiles']:,}", str(one["at_once"])),
            *(str(one["rounds"]), f"{100 * one['filled']:.0f} %"),
            *(duration(one["ns"]), tera(one["rate"])),
        ]
        for one in products(said)
    ]
    return table(heads, rows, left=0)


def tera(rate: float) -> str:
    return f"{rate / 1e12:.0f}"


def span(rates: list[float]) -> str:
    return f"{tera(min(rates))} to {tera(max(rates))}"


def answer(said: Said) -> str:
    found = products(said)
    steps = list(pairwise(found))
    before, after = min(steps, key=lambda pair: pair[1]["rate"] / pair[0]["rate"])
    fastest = max(found, key=lambda one: one["rate"])
    several = [one for one in found if one["rounds"] > 1]
    work = (after["side"] / before["side"]) ** 3
    return numbered(
        [
            f"The fastest is {fastest['side']:,}, {tera(fastest['rate'])} TFLOP/s; larger is "
            f"not faster: {sum(b['rate'] < a['rate'] for a, b in steps)} of {len(steps)} steps to "
            f"the next size lose throughput.",
            f"The deepest: from {before['side']:,} to {after['side']:,} the product is "
            f"{100 * (work - 1):.0f} % more work and takes "
            f"{100 * (after['ns'] / before['ns'] - 1):.0f} % longer "
            f"({tera(before['rate'])} to {tera(after['rate'])} TFLOP/s, "
            f"{after['rate'] / before['rate']:.2f} times). In both the SMs take tiles in "
            f"{before['rounds']} rounds: {before['tiles']} tiles fill "
            f"{100 * before['filled']:.0f} % of the places in them, {after['tiles']} fill "
            f"{100 * after['filled']:.0f} %, "
            f"{after['filled'] / before['filled']:.2f} times as much.",
            f"That is the sawtooth: of the {len(several)} sizes that take more than one round, "
            f"throughput is {span([one['rate'] for one in several])} TFLOP/s, and divided by the "
            f"share of places filled {span([one['rate'] / one['filled'] for one in several])}. "
            f"Smaller ones also lose to small tiles and to starting up.",
            "cuBLAS knows: it takes other tiles from one size to the next, and often starts "
            "no more blocks than there are SMs, each of which then takes tile after tile. Such a "
            "grid is one full wave and shows no loss; its tiles do. The kernel's name tells how "
            "large they are, and the shapes of the tensors (`--shapes`) how many: "
            f"*{said.finding('wave-quantization', 'rounds')}*.",
        ]
    )


def blocks(said: Mapping[str, Said]) -> Mapping[str, str]:
    return {"table": compared(said["sizes"]), "answer": answer(said["sizes"])}


def draw(said: Mapping[str, Said], axes: Axes) -> None:
    found = products(said["sizes"])
    sides = [one["side"] for one in found]
    several = [one for one in found if one["rounds"] > 1]
    level = max(one["rate"] / one["filled"] for one in several) / 1e12
    axes.plot(
        [one["side"] for one in several],
        [level * one["filled"] for one in several],
        color="0.6",
        label=f"share of places filled × {level:.0f}",
    )
    axes.plot(sides, [one["rate"] / 1e12 for one in found], "o-", markersize=4, label="measured")
    axes.set(xlabel="side of the float16 matrices", ylabel="TFLOP/s", ylim=(0, None))
    axes.set_xticks(range(1024, 4097, 512))
    axes.legend(frameon=False, loc="lower right")


CASE = Case(
    recordings={
        "sizes": Recording(
            "reports/matmul-sawtooth/sizes.sqlite.xz",
            "workloads/matmul.py",
            ("--types", "float16", "--sizes", *map(str, SIZES), "--steps", "3"),
            ("--shapes", "--backtrace", "none", "--no-kernels"),
        )
    },
    blocks=blocks,
    draw=draw,
    ranges=("step_*",),
)

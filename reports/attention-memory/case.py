"""Attention written out and flash attention, over sequence lengths: memory and time."""

import re
from collections.abc import Mapping

from gallery import Case, Said, numbered, of_workload, table, times
from matplotlib.axes import Axes

from traceview.units import duration, size

HEADS, DIM, BYTES = 8, 64, 2
WAYS = ("naive", "flash")
MARK = re.compile(r"peak memory of (\w+)_(\d+): (\d+) bytes")


def peaks(said: Said) -> dict[str, dict[int, int]]:
    """Bytes beyond the inputs that each way took at each length, as its marks tell."""
    found: dict[str, dict[int, int]] = {way: {} for way in WAYS}
    for row in said.trace.ranges.rows():
        told = MARK.fullmatch(row["name"]) if row["kind"] == "mark" else None
        if told:
            way, length, taken = told[1], int(told[2]), int(told[3])
            found[way][length] = max(taken, found[way].get(length, 0))
    return found


def took(said: Said, way: str, length: int) -> float:
    """Kernel time of one call, the median of the steps."""
    return said.range_ns(rf"step_\d+/{way}_{length}")


def scores(length: int) -> int:
    """Bytes of the scores of all pairs of positions."""
    return HEADS * length * length * BYTES


def result(length: int) -> int:
    return HEADS * length * DIM * BYTES


def compared(said: Said) -> str:
    memory = peaks(said)
    heads = ["length", "scores and their softmax", "naive takes", "flash takes", "naive, time"]
    rows = [
        [
            f"{length:,}",
            size(2 * scores(length)),
            size(memory["naive"][length]),
            size(memory["flash"][length]),
            duration(took(said, "naive", length)),
            duration(took(said, "flash", length)),
            times(took(said, "naive", length) / took(said, "flash", length)),
        ]
        for length in sorted(memory["naive"])
    ]
    return table([*heads, "flash, time", "naive ÷ flash"], rows, left=0)


def answer(said: Said) -> str:
    memory = peaks(said)
    naive, flash = memory["naive"], memory["flash"]
    first, second, *_, before, last = sorted(naive)
    over = naive[last] - 2 * scores(last) - result(last)
    split = [row["short_name"] for row in said.kernels_within(f"step_*/flash_{first}")]
    points = [
        f"At {last:,} positions the naive way takes {size(naive[last])}. The scores of {HEADS} "
        f"heads in bfloat16 are {size(scores(last))}; the scores, their softmax and the result "
        f"make up {'all of it, to the byte' if not over else f'all but {size(over)} of it'}.",
        f"Twice the length is {times(naive[last] / naive[before])} the memory for the naive way, "
        f"{times(flash[last] / flash[before])} for flash.",
        f"Flash takes {size(flash[last])} there, {naive[last] / flash[last]:.0f} times less: the "
        f"result ({size(result(last))}), and one float32 per row and head "
        f"({size(4 * HEADS * last)}).",
        f"Both do the same arithmetic. The naive way also moves every score to memory and back "
        f"several times, and takes {times(took(said, 'naive', last) / took(said, 'flash', last))} "
        f"as long at {last:,}, {times(took(said, 'naive', first) / took(said, 'flash', first))} at "
        f"{first:,}.",
        f"The larger part of that is the softmax between the products: "
        f"{100 * softmax_share(said, last):.0f} % of the naive time at {last:,}.",
    ]
    if any("splitkv" in name for name in split):
        points.append(
            f"At {first:,} flash takes more than at the next length ({size(flash[first])} "
            f"against {size(flash[second])}): it splits the keys over more blocks, to fill the "
            f"GPU, and keeps their partial results (`{'`, `'.join(split)}`)."
        )
    return numbered(points)


def softmax_share(said: Said, length: int) -> float:
    """Of the kernel time of the naive way, the part of the softmax."""
    rows = said.kernels_within(f"step_*/naive_{length}")
    softmax = [row["total_ns"] for row in rows if "softmax" in row["short_name"].lower()]
    return sum(softmax) / sum(row["total_ns"] for row in rows)


def blocks(said: Mapping[str, Said]) -> Mapping[str, str]:
    attention = said["attention"]
    return {"table": compared(attention), "answer": answer(attention)}


def draw(said: Mapping[str, Said], axes: Axes) -> None:
    memory = peaks(said["attention"])
    for way, marker in zip(WAYS, "os", strict=True):
        lengths = sorted(memory[way])
        megabytes = [memory[way][length] / 1e6 for length in lengths]
        axes.loglog(lengths, megabytes, marker=marker, base=2, label=way)
    axes.set(xlabel="positions", ylabel="memory beyond the inputs (MB)")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.set_yticks(ticks := [1, 10, 100, 1000, 10000], [f"{tick:,}" for tick in ticks])
    axes.legend(frameon=False)


CASE = Case(
    recordings={"attention": of_workload("attention")},
    blocks=blocks,
    draw=draw,
    ranges=("step_*",),
)

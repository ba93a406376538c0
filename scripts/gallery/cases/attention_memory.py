"""Naive attention and flash attention over sequence lengths: memory and time."""

import re
from collections.abc import Mapping

from matplotlib.axes import Axes

from gallery.case import Case, RecordingReport
from gallery.markdown import numbered, table, times
from gallery.recording import recording
from traceview.base.units import duration, size

HEADS, HEAD_DIM, BYTES = 8, 64, 2
VERSIONS = ("naive", "flash")
MARK = re.compile(r"peak memory of (\w+)_(\d+): (\d+) bytes")


def peaks(recorded: RecordingReport) -> dict[str, dict[int, int]]:
    """Peak bytes beyond the inputs by version and sequence length, from the marks."""
    peak: dict[str, dict[int, int]] = {version: {} for version in VERSIONS}
    for row in recorded.trace.ranges.rows():
        mark = MARK.fullmatch(row["name"]) if row["kind"] == "mark" else None
        if mark:
            version, length, taken = mark[1], int(mark[2]), int(mark[3])
            peak[version][length] = max(taken, peak[version].get(length, 0))
    return peak


def call_ns(recorded: RecordingReport, version: str, length: int) -> float:
    """Kernel time of one call: the median of the steps."""
    return recorded.range_ns(rf"step_\d+/{version}_{length}")


def slowdown(recorded: RecordingReport, length: int) -> float:
    """Time of naive attention ÷ time of flash attention."""
    return call_ns(recorded, "naive", length) / call_ns(recorded, "flash", length)


def scores_bytes(length: int) -> int:
    """Bytes of the scores of all pairs of positions."""
    return HEADS * length * length * BYTES


def output_bytes(length: int) -> int:
    return HEADS * length * HEAD_DIM * BYTES


def length_table(recorded: RecordingReport) -> str:
    memory = peaks(recorded)
    heads = ["length", "scores + softmax", "naive memory", "flash memory", "naive time"]
    rows = [
        [
            f"{length:,}",
            size(2 * scores_bytes(length)),
            size(memory["naive"][length]),
            size(memory["flash"][length]),
            duration(call_ns(recorded, "naive", length)),
            duration(call_ns(recorded, "flash", length)),
            times(slowdown(recorded, length)),
        ]
        for length in sorted(memory["naive"])
    ]
    return table([*heads, "flash time", "naive ÷ flash"], rows, left=0)


def answer(recorded: RecordingReport) -> str:
    memory = peaks(recorded)
    naive, flash = memory["naive"], memory["flash"]
    first, second, *_, before, last = sorted(naive)
    rest = naive[last] - 2 * scores_bytes(last) - output_bytes(last)
    first_kernels = [row["short_name"] for row in recorded.kernels_within(f"step_*/flash_{first}")]
    points = [
        f"At {last:,} positions naive attention takes {size(naive[last])}. The scores of {HEADS} "
        f"heads in bfloat16 are {size(scores_bytes(last))}. Scores, softmax and output add up to "
        f"{'exactly that, to the byte' if not rest else f'all but {size(rest)} of it'}.",
        f"Doubling the length takes {times(naive[last] / naive[before])} the memory for naive "
        f"attention and {times(flash[last] / flash[before])} for flash attention.",
        f"Flash attention takes {size(flash[last])} there, {naive[last] / flash[last]:.0f} times "
        f"less: the output ({size(output_bytes(last))}) and one float32 per row and head "
        f"({size(4 * HEADS * last)}).",
        f"Both do the same arithmetic. Naive attention also writes every score to memory and reads "
        f"it back several times. It takes {times(slowdown(recorded, last))} as long at {last:,} "
        f"positions and {times(slowdown(recorded, first))} at {first:,}.",
        f"Most of that is the softmax between the two GEMMs: "
        f"{100 * softmax_fraction(recorded, last):.0f} % of the naive time at {last:,}.",
    ]
    if any("splitkv" in name for name in first_kernels):
        points.append(
            f"At {first:,} flash attention takes more memory than at the next length "
            f"({size(flash[first])} against {size(flash[second])}). It splits the keys over more "
            f"blocks to fill the GPU and stores their partial results "
            f"(`{'`, `'.join(first_kernels)}`)."
        )
    return numbered(points)


def softmax_fraction(recorded: RecordingReport, length: int) -> float:
    """The softmax's fraction (0 to 1) of the kernel time of naive attention."""
    rows = recorded.kernels_within(f"step_*/naive_{length}")
    softmax = [row["total_ns"] for row in rows if "softmax" in row["short_name"].lower()]
    return sum(softmax) / sum(row["total_ns"] for row in rows)


def blocks(reports: Mapping[str, RecordingReport]) -> Mapping[str, str]:
    recorded = reports["attention"]
    return {"table": length_table(recorded), "answer": answer(recorded)}


def draw(reports: Mapping[str, RecordingReport], axes: Axes) -> None:
    memory = peaks(reports["attention"])
    for version, marker in zip(VERSIONS, "os", strict=True):
        lengths = sorted(memory[version])
        megabytes = [memory[version][length] / 1e6 for length in lengths]
        axes.loglog(lengths, megabytes, marker=marker, base=2, label=version)
    axes.set(xlabel="positions", ylabel="memory beyond the inputs (MB)")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.set_yticks(ticks := [1, 10, 100, 1000, 10000], [f"{tick:,}" for tick in ticks])
    axes.legend(frameon=False)


CASE = Case(
    recordings={"attention": recording("attention")},
    blocks=blocks,
    draw=draw,
    ranges=("step_*",),
)

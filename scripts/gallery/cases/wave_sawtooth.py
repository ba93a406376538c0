"""One kernel at many grid sizes: a staircase of time, a sawtooth of throughput."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from gallery.case import Case, RecordingReport
from gallery.markdown import numbered, table, times
from gallery.recording import recording
from traceview.base.units import duration

ALONE, COMPETE = "spin_alone", "compete"


def grids(recorded: RecordingReport, kernel: str) -> list[dict]:
    """The rows of `wave-quantization` for each grid of a kernel, by number of blocks."""
    rows = recorded.rows("wave-quantization", "grids")
    of_kernel = [row for row in rows if row["kernel"].partition(",")[0] == kernel]
    return sorted(of_kernel, key=lambda row: row["blocks"])


def grid_table(recorded: RecordingReport) -> str:
    heads = ["blocks", "waves", "time per launch", "predicted", "blocks per µs", "slots unused"]
    rows = []
    for row in grids(recorded, ALONE):
        slots = -(-row["blocks"] // row["wave_blocks"]) * row["wave_blocks"]
        rows.append(
            [
                f"{row['blocks']:,}",
                f"{row['waves']:.2f}",
                duration(row["median_ns"]),
                duration(row["predicted_ns"]),
                f"{1e3 * row['blocks'] / row['median_ns']:.1f}",
                f"{100 * (1 - row['blocks'] / slots):.0f} %",
            ]
        )
    return table(heads, rows, left=0)


def answer(recorded: RecordingReport) -> str:
    alone = {row["blocks"]: row for row in grids(recorded, ALONE)}
    compete = {row["blocks"]: row for row in grids(recorded, COMPETE)}
    wave, compete_wave = (rows[1]["wave_blocks"] for rows in (alone, compete))
    full, past = alone[wave], alone[wave + 1]
    compete_full, compete_past = compete[compete_wave], compete[compete_wave + 1]
    last = max(alone)
    error = max(abs(row["median_ns"] / row["predicted_ns"] - 1) for row in alone.values())
    return numbered(
        [
            f"The GPU holds {wave} blocks of `{ALONE}` at once: its shared memory allows one block "
            f"on each of {wave} SMs. All grids from 1 to {wave} blocks take the same time, "
            f"{duration(full['median_ns'])}.",
            f"Block {wave + 1} needs a second wave to itself: {duration(past['median_ns'])}, "
            f"{times(past['median_ns'] / full['median_ns'])} for {100 / wave:.1f} % more work. "
            f"{wave - 1} of {wave} SMs have nothing to do in it.",
            f"The step at {last:,} blocks is as sharp but matters less: "
            f"{times(alone[last]['median_ns'] / alone[last - 1]['median_ns'])}. The tail effect "
            f"shrinks as the number of waves grows.",
            f"Waves × the time of one wave predicts every grid within {100 * error:.1f} %.",
            f"This is not a law. `{COMPETE}` has {compete_wave:,} blocks per wave, and its blocks "
            f"compete for the issue slots of their SM: {compete_wave + 1:,} blocks take "
            f"{times(compete_past['median_ns'] / compete_full['median_ns'])} as long as "
            f"{compete_wave:,}, not twice. Where a recording holds several grids of a kernel, "
            f"`wave-quantization` checks whether the times really rise in steps: "
            f"`{past['measured']}` for `{ALONE}`, `{compete_past['measured']}` for "
            f"`{COMPETE}`.",
            f"The report says: *{recorded.finding('wave-quantization', ALONE, blocks=wave + 1)}*",
        ]
    )


def blocks(reports: Mapping[str, RecordingReport]) -> Mapping[str, str]:
    return {"table": grid_table(reports["waves"]), "answer": answer(reports["waves"])}


def draw(reports: Mapping[str, RecordingReport], axes: Axes) -> None:
    rows = grids(reports["waves"], ALONE)
    blocks = [row["blocks"] for row in rows]
    wave, wave_us = rows[0]["wave_blocks"], rows[0]["wave_ns"] / 1e3
    last = blocks[-1] // wave + 1
    axes.stairs(
        [wave_us * number for number in range(1, last + 1)],
        [wave * number for number in range(last + 1)],
        baseline=None,
        color="0.6",
        label="waves × time of one wave",
    )
    measured = [row["median_ns"] / 1e3 for row in rows]
    axes.plot(blocks, measured, "o", markersize=4, label=f"measured (median of {rows[0]['calls']})")
    axes.set(xlabel=f"blocks of {ALONE}", ylabel="time per launch (µs)", ylim=(0, None))
    axes.set_xticks([wave * number for number in range(last + 1)])
    axes.set_xlim(0, blocks[-1] + wave / 3)
    axes.legend(frameon=False)


CASE = Case(
    recordings={"waves": recording("waves")},
    blocks=blocks,
    draw=draw,
)

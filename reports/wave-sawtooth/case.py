"""One kernel at many grid sizes: a staircase of time, a sawtooth of throughput."""

from collections.abc import Mapping

from gallery import DATA, Case, Recording, Said, numbered, table, times
from matplotlib.axes import Axes

from traceview.units import duration

ALONE, COMPETE = "spin_alone", "compete"


def sizes(said: Said, kernel: str) -> list[dict]:
    """What `wave-quantization` says of each grid of a kernel, by the number of blocks."""
    rows = said.rows("wave-quantization", "grids")
    mine = [row for row in rows if row["kernel"].partition(",")[0] == kernel]
    return sorted(mine, key=lambda row: row["blocks"])


def staircase(said: Said) -> str:
    heads = [
        "blocks",
        "waves",
        "a launch takes",
        "predicted",
        "blocks a µs",
        "places that stay empty",
    ]
    rows = []
    for row in sizes(said, ALONE):
        held = row["wave_blocks"]
        places = -(-row["blocks"] // held) * held
        rows.append(
            [
                f"{row['blocks']:,}",
                f"{row['waves']:.2f}",
                duration(row["median_ns"]),
                duration(row["predicted_ns"]),
                f"{1e3 * row['blocks'] / row['median_ns']:.1f}",
                f"{100 * (1 - row['blocks'] / places):.0f} %",
            ]
        )
    return table(heads, rows, left=0)


def answer(said: Said) -> str:
    alone = {row["blocks"]: row for row in sizes(said, ALONE)}
    compete = {row["blocks"]: row for row in sizes(said, COMPETE)}
    held, together = (rows[1]["wave_blocks"] for rows in (alone, compete))
    full, past = alone[held], alone[held + 1]
    last = max(alone)
    off = max(abs(row["median_ns"] / row["predicted_ns"] - 1) for row in alone.values())
    return numbered(
        [
            f"The GPU holds {held} blocks of `{ALONE}` at once: its shared memory lets one block "
            f"onto each of {held} SMs. All grids from 1 to {held} blocks take the same time, "
            f"{duration(full['median_ns'])}.",
            f"Block {held + 1} begins a second wave for itself: {duration(past['median_ns'])}, "
            f"{times(past['median_ns'] / full['median_ns'])} for {100 / held:.1f} % more work. "
            f"{held - 1} of {held} SMs have nothing to do in it.",
            f"The step is as sharp at {last:,} blocks, but weighs less: "
            f"{times(alone[last]['median_ns'] / alone[last - 1]['median_ns'])}. What a bad grid "
            f"can lose falls with the number of waves.",
            f"Waves × the time of one predicts every grid within {100 * off:.1f} %.",
            f"It is no law. `{COMPETE}` has {together:,} blocks a wave, and its blocks compete for "
            f"the issue slots of their SM: {together + 1:,} blocks take "
            f"{times(compete[together + 1]['median_ns'] / compete[together]['median_ns'])} the "
            f"time of {together:,}, not twice. Where a recording holds several grids of a kernel, "
            f"`wave-quantization` looks whether the times do rise, and says so: "
            f"`{past['measured']}` for `{ALONE}`, `{compete[together + 1]['measured']}` for "
            f"`{COMPETE}`.",
            f"In its words: *{said.finding('wave-quantization', f'{ALONE} launches {held + 1}')}*.",
        ]
    )


def blocks(said: Mapping[str, Said]) -> Mapping[str, str]:
    waves = said["waves"]
    return {"table": staircase(waves), "answer": answer(waves)}


def draw(said: Mapping[str, Said], axes: Axes) -> None:
    rows = sizes(said["waves"], ALONE)
    blocks = [row["blocks"] for row in rows]
    held, one = rows[0]["wave_blocks"], rows[0]["wave_ns"] / 1e3
    last = blocks[-1] // held + 1
    axes.stairs(
        [one * wave for wave in range(1, last + 1)],
        [held * wave for wave in range(last + 1)],
        baseline=None,
        color="0.6",
        label="waves × the time of one",
    )
    measured = [row["median_ns"] / 1e3 for row in rows]
    axes.plot(blocks, measured, "o", markersize=4, label=f"measured (median of {rows[0]['calls']})")
    axes.set(xlabel=f"blocks of {ALONE}", ylabel="a launch takes (µs)", ylim=(0, None))
    axes.set_xticks([held * wave for wave in range(last + 1)])
    axes.set_xlim(0, blocks[-1] + held / 3)
    axes.legend(frameon=False)


CASE = Case(
    recordings={"waves": Recording(f"{DATA}/waves.sqlite.xz", "workloads/wave_quantization.py")},
    blocks=blocks,
    draw=draw,
)

"""What one `print(loss.item())` a step costs, at three sizes."""

from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Any

from gallery import Case, Recording, Said, numbered, table
from matplotlib.axes import Axes

from traceview.units import duration

FOLDER = "reports/printing-the-loss"
SIZES = {
    "large": (),
    "middle": ("--dim", "1024", "--batch", "2048", "--steps", "20"),
    "small": ("--dim", "512", "--batch", "512", "--steps", "20"),
}
RUNS = {"without": (), "with": ("--print-loss",)}
MS = 1e6


def answers(said: Said) -> dict[str, Any]:
    """The figures of one recording: times are medians of the steps after the second."""
    steps = said.rows("run-ahead", "ranges")
    starts = [step["gpu_start_ns"] for step in steps]
    issued = [step["cpu_end_ns"] - step["cpu_start_ns"] for step in steps]
    causes = {row["cause"]: row for row in said.rows("gpu-idle", "causes")}
    drained = causes.get("sync-drain")
    # Set-up waits too, once: that is no price of a step.
    recurs = drained is not None and drained["steady_idle_ns"] > 0
    prints = [row for row in said.rows("sync-stalls", "sites") if row["hint"] == "Tensor.item"]
    waits = [row for row in prints if row["api"] == "cudaStreamSynchronize"]
    return {
        "verdict": said.rows("run-ahead", "devices")[0]["verdict"],
        "period_ns": median(later - sooner for sooner, later in pairwise(starts[1:])),
        "issued_ns": median(issued[2:]),
        "leads_ns": [step["lead_ns"] for step in steps],
        "steps_ahead": max(step["steps_ahead"] for step in steps),
        "idle_after_ns": drained["idle_ns"] / drained["gaps"] if recurs else None,
        "wait_ns": waits[0]["wait_ns"] / waits[0]["calls"] if waits else None,
        "benign_pct": 100 * waits[0]["benign_ns"] / waits[0]["wait_ns"] if waits else None,
    }


def lead(found: Mapping[str, Any]) -> str:
    """How long before or after the GPU the CPU ends its last step."""
    last = found["leads_ns"][-1]
    return f"{duration(abs(last))} {'before' if last > 0 else 'after'} the GPU"


def compared(said: Mapping[str, Said]) -> str:
    heads = ["dim × batch", "run", "verdict", "the CPU ends its last step", "steps ahead"]
    rows = []
    for size, sizes in SIZES.items():
        options = dict(zip(sizes[::2], sizes[1::2], strict=True))
        shape = f"{options.get('--dim', 2048)} × {options.get('--batch', 4096)}"
        free = answers(said[f"{size}_without"])["period_ns"]
        for run in RUNS:
            found = answers(said[f"{size}_{run}"])
            adds = f"{100 * (found['period_ns'] / free - 1):.1f} %" if run == "with" else ""
            idle = duration(found["idle_after_ns"]) if found["idle_after_ns"] else "none"
            rows.append(
                [
                    *(shape, run, f"`{found['verdict']}`", lead(found), str(found["steps_ahead"])),
                    *(duration(found["period_ns"]), adds, idle),
                ]
            )
    figures = ["a step takes", "printing adds", "GPU idle due to a wait, each time"]
    return table([*heads, *figures], rows, left=4)


def answer(said: Mapping[str, Said]) -> str:
    found = {key: answers(one) for key, one in said.items()}
    free, printing = found["large_without"], found["large_with"]
    adds = {
        size: found[f"{size}_with"]["period_ns"] - found[f"{size}_without"]["period_ns"]
        for size in SIZES
    }
    share = {size: 100 * adds[size] / found[f"{size}_without"]["period_ns"] for size in SIZES}
    short = found["middle_without"]
    middle, small, smaller = (found[key] for key in ("middle_with", "small_with", "small_without"))
    return numbered(
        [
            f"Without the print the CPU only hands out work. At 2048 × 4096 it issues a step in "
            f"{duration(free['issued_ns'])} that takes the GPU {duration(free['period_ns'])}, and "
            f"ends its last step {lead(free)}.",
            f"With it, `loss.item()` copies one number to the host and waits for everything before "
            f"it. The lead is given up in every step: the CPU ends each one after the GPU does, "
            f"the last {duration(-printing['leads_ns'][-1])} after it.",
            f"What that costs is not the wait, {duration(printing['wait_ns'])} each time: the GPU "
            f"works in {printing['benign_pct']:.1f} % of it, which `sync-stalls` counts as benign. "
            f"It costs the time from the GPU running dry to the next kernel reaching it: "
            f"{duration(printing['idle_after_ns'])} each time.",
            f"It does not shrink as a step does: at 1024 × 2048 the steps are "
            f"{free['period_ns'] / short['period_ns']:.1f} times shorter, and that time "
            f"{printing['idle_after_ns'] / middle['idle_after_ns']:.1f} times "
            f"({duration(middle['idle_after_ns'])}). So it hurts short steps more: one of "
            f"{duration(free['period_ns'])} gets {share['large']:.1f} % longer, one of "
            f"{duration(short['period_ns'])} {share['middle']:.1f} %.",
            f"At 512 × 512 the GPU runs dry either way: the verdict is `{small['verdict']}` with "
            f"the print and `{smaller['verdict']}` without. The CPU finds the GPU idle and waits "
            f"{duration(small['wait_ns'])}, so no idle time is put down to the wait. The steps "
            f"with the print are {duration(adds['small'])} longer all the same: that is time of "
            f"the CPU, for the print and whatever else two runs differ by.",
        ]
    )


def blocks(said: Mapping[str, Said]) -> Mapping[str, str]:
    return {"table": compared(said), "answer": answer(said)}


def draw(said: Mapping[str, Said], axes: Axes) -> None:
    """Lead of the CPU over the GPU at the end of each step of the large pair."""
    for run, marker in zip(RUNS, "os", strict=True):
        leads = [lead / MS for lead in answers(said[f"large_{run}"])["leads_ns"]]
        axes.plot(leads, marker=marker, label=f"{run} --print-loss")
    axes.set(xlabel="step", ylabel="CPU ahead of the GPU (ms)")
    axes.legend(frameon=False)


CASE = Case(
    recordings={
        f"{size}_{run}": Recording(
            f"{FOLDER}/{size}_{run}.sqlite.xz", "workloads/mlp.py", (*sizes, *more)
        )
        for size, sizes in SIZES.items()
        for run, more in RUNS.items()
    },
    blocks=blocks,
    draw=draw,
    reported=("large_without", "large_with"),
)

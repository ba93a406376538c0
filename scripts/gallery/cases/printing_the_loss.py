"""The cost of one `print(loss.item())` per step, at three sizes."""

from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Any

from matplotlib.axes import Axes

from gallery.case import Case, RecordingReport
from gallery.markdown import numbered, table
from gallery.recording import MLP_RUNS, MLP_SIZES, recording
from traceview.base.units import duration

MS = 1e6


def figures(recorded: RecordingReport) -> dict[str, Any]:
    """The numbers of one recording. Times are medians of the steps after the second."""
    steps = recorded.rows("run-ahead", "ranges")
    starts = [step["gpu_start_ns"] for step in steps]
    issued = [step["cpu_end_ns"] - step["cpu_start_ns"] for step in steps]
    causes = {row["cause"]: row for row in recorded.rows("gpu-idle", "causes")}
    drained = causes.get("sync-drain")
    # Start-up waits once, too; that is not a cost of each step.
    recurs = drained is not None and drained["steady_idle_ns"] > 0
    prints = [row for row in recorded.rows("sync-stalls", "sites") if row["hint"] == "Tensor.item"]
    waits = [row for row in prints if row["api"] == "cudaStreamSynchronize"]
    return {
        "verdict": recorded.rows("run-ahead", "devices")[0]["verdict"],
        "period_ns": median(later - sooner for sooner, later in pairwise(starts[1:])),
        "issued_ns": median(issued[2:]),
        "leads_ns": [step["lead_ns"] for step in steps],
        "steps_ahead": max(step["steps_ahead"] for step in steps),
        "idle_after_ns": drained["steady_idle_ns"] / len(steps[2:]) if recurs else None,
        "wait_ns": waits[0]["wait_ns"] / waits[0]["calls"] if waits else None,
        "benign_pct": 100 * waits[0]["benign_ns"] / waits[0]["wait_ns"] if waits else None,
    }


def lead(run: Mapping[str, Any]) -> str:
    """The CPU's lead over the GPU at the end of the last step."""
    last = run["leads_ns"][-1]
    return f"{duration(abs(last))} {'before' if last > 0 else 'after'} the GPU"


def run_table(reports: Mapping[str, RecordingReport]) -> str:
    heads = ["dim × batch", "print", "verdict", "CPU finishes its last step", "steps ahead"]
    rows = []
    for size, sizes in MLP_SIZES.items():
        options = dict(zip(sizes[::2], sizes[1::2], strict=True))
        shape = f"{options.get('--dim', 2048)} × {options.get('--batch', 4096)}"
        unprinted_ns = figures(reports[f"{size}_without"])["period_ns"]
        for name in MLP_RUNS:
            run = figures(reports[f"{size}_{name}"])
            added = f"{100 * (run['period_ns'] / unprinted_ns - 1):.1f} %" if name == "with" else ""
            idle = duration(run["idle_after_ns"]) if run["idle_after_ns"] else "none"
            rows.append(
                [
                    *(shape, name, f"`{run['verdict']}`", lead(run), str(run["steps_ahead"])),
                    *(duration(run["period_ns"]), added, idle),
                ]
            )
    return table([*heads, "time per step", "added by the print", "GPU idle per wait"], rows, left=4)


def answer(reports: Mapping[str, RecordingReport]) -> str:
    runs = {key: figures(recorded) for key, recorded in reports.items()}
    without, printing = runs["large_without"], runs["large_with"]
    added_ns = {
        size: runs[f"{size}_with"]["period_ns"] - runs[f"{size}_without"]["period_ns"]
        for size in MLP_SIZES
    }
    added_pct = {
        size: 100 * added_ns[size] / runs[f"{size}_without"]["period_ns"] for size in MLP_SIZES
    }
    short = runs["middle_without"]
    middle, small, smaller = (runs[key] for key in ("middle_with", "small_with", "small_without"))
    return numbered(
        [
            f"Without the print the CPU only launches work. At 2048 × 4096 it launches a step in "
            f"{duration(without['issued_ns'])}; the GPU takes {duration(without['period_ns'])} to "
            f"run it. The CPU finishes its last step {lead(without)}.",
            f"With the print, `loss.item()` copies one number to the host and waits for all work "
            f"before it. The CPU loses its lead in every step: it finishes each one after the GPU, "
            f"the last one {duration(-printing['leads_ns'][-1])} after it.",
            f"The wait itself, {duration(printing['wait_ns'])} each time, is not the cost: the GPU "
            f"is busy for {printing['benign_pct']:.1f} % of it, which `sync-stalls` counts as "
            f"benign. The cost is the time from the GPU running dry until the next kernel reaches "
            f"it, {duration(printing['idle_after_ns'])} each time.",
            f"That cost does not shrink with the step. At 1024 × 2048 the steps are "
            f"{without['period_ns'] / short['period_ns']:.1f} times shorter, the idle time only "
            f"{printing['idle_after_ns'] / middle['idle_after_ns']:.1f} times "
            f"({duration(middle['idle_after_ns'])}). So short steps suffer more: "
            f"{duration(without['period_ns'])} become {added_pct['large']:.1f} % longer, "
            f"{duration(short['period_ns'])} become {added_pct['middle']:.1f} % longer.",
            f"At 512 × 512 the GPU runs dry in both runs: the verdict is `{small['verdict']}` with "
            f"the print and `{smaller['verdict']}` without. The CPU finds the GPU idle and waits "
            f"only {duration(small['wait_ns'])}, so no more than "
            f"{duration(small['idle_after_ns'])} of idle time are attributed to the wait. The "
            f"steps with the print still take {duration(added_ns['small'])} longer. That is CPU "
            f"time: the print, and whatever else differs between two runs.",
        ]
    )


def blocks(reports: Mapping[str, RecordingReport]) -> Mapping[str, str]:
    return {"table": run_table(reports), "answer": answer(reports)}


def draw(reports: Mapping[str, RecordingReport], axes: Axes) -> None:
    """The CPU's lead over the GPU at the end of each step, of the large pair."""
    for name, marker in zip(MLP_RUNS, "os", strict=True):
        leads = [lead_ns / MS for lead_ns in figures(reports[f"large_{name}"])["leads_ns"]]
        axes.plot(leads, marker=marker, label=f"{name} --print-loss")
    axes.set(xlabel="step", ylabel="CPU ahead of the GPU (ms)")
    axes.legend(frameon=False)


CASE = Case(
    recordings={
        f"{size}_{run}": recording(f"{size}_{run}") for size in MLP_SIZES for run in MLP_RUNS
    },
    blocks=blocks,
    draw=draw,
    reported=("large_without", "large_with"),
)

"""Make this page's figures from its recordings, or with --record the recordings first (on a GPU).

    python reports/printing-the-loss/make.py [--record]

Writes the table and the machine into README.md between its marks, lead.svg, and the HTML and JSON
of the large pair.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

import traceview

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
WORKLOAD = "workloads/mlp.py"
SIZES = {
    "large": [],
    "middle": ["--dim", "1024", "--batch", "2048", "--steps", "20"],
    "small": ["--dim", "512", "--batch", "512", "--steps", "20"],
}
RUNS = {"without": [], "with": ["--print-loss"]}
MS = 1e6


def packed(size: str, run: str) -> Path:
    return HERE / f"{size}_{run}.sqlite.xz"


def record() -> None:
    """Record all pairs, and keep of each what the answers need."""
    for size, sizes in SIZES.items():
        for run, more in RUNS.items():
            with tempfile.TemporaryDirectory() as folder:
                whole = Path(folder, "whole.sqlite")
                traceview.record(WORKLOAD, *sizes, *more, out=whole, note=print)
                shrink = [sys.executable, "tests/data/shrink.py", whole, packed(size, run)]
                subprocess.run(shrink, check=True)


def answers(size: str, run: str) -> dict[str, Any]:
    """The figures of one recording: times are medians of the steps after the second."""
    report = traceview.analyze(traceview.load(packed(size, run)))
    tables = report.outcomes["run-ahead"].tables
    steps = list(tables["ranges"].rows())
    starts = [step["gpu_start_ns"] for step in steps]
    periods = [later - sooner for sooner, later in pairwise(starts[1:])]
    causes = report.outcomes["gpu-idle"].tables["causes"].rows()
    drained = [cause for cause in causes if cause["cause"] == "sync-drain"]
    return {
        "verdict": next(tables["devices"].rows())["verdict"],
        "period_ns": median(periods),
        "leads_ns": [step["lead_ns"] for step in steps],
        "steps_ahead": max(step["steps_ahead"] for step in steps),
        "idle_after_ns": drained[0]["idle_ns"] / drained[0]["gaps"] if drained else None,
    }


def table() -> str:
    """The Markdown table of all pairs."""
    lines = [
        "| dim × batch | run | verdict | a step takes | printing adds | the CPU ends its last step "
        "| steps ahead | GPU idle due to its wait, each time |",
        "|---|---|---|---:|---:|---|---:|---:|",
    ]
    for size, sizes in SIZES.items():
        options = dict(zip(sizes[::2], sizes[1::2], strict=True))
        shape = f"{options.get('--dim', 2048)} × {options.get('--batch', 4096)}"
        free = answers(size, "without")["period_ns"]
        for run in RUNS:
            found = answers(size, run)
            adds = f"{100 * (found['period_ns'] / free - 1):.1f} %" if run == "with" else ""
            last = found["leads_ns"][-1]
            lead = f"{abs(last) / MS:.2f} ms {'before' if last > 0 else 'after'} the GPU"
            idle = found["idle_after_ns"]
            idle = f"{idle / 1e3:.0f} µs" if idle else "none" if run == "with" else ""
            lines.append(
                f"| {shape} | {run} | `{found['verdict']}` | {found['period_ns'] / MS:.2f} ms "
                f"| {adds} | {lead} | {found['steps_ahead']} | {idle} |"
            )
    return "\n".join(lines)


def machine() -> str:
    """What it was recorded on, from the recording itself."""
    trace = traceview.load(packed("large", "with"))
    driver = trace.run["driver"].partition(".")[0]
    cuda = ".".join(trace.run["cuda"].split(".")[:2])
    return (
        f"Recorded on one H200, driver {driver}, CUDA {cuda}, torch {trace.run['torch']}, Python "
        f"{trace.run['python']}, nsys {trace.recorder_version}, {trace.run['started_utc'][:10]}."
    )


def picture() -> None:
    """Lead of the CPU over the GPU at the end of each step of the large pair."""
    figure = Figure(figsize=(7, 2.8), layout="constrained")
    axes = figure.add_subplot()
    for run, marker in zip(RUNS, "os", strict=True):
        leads = [lead / MS for lead in answers("large", run)["leads_ns"]]
        axes.plot(leads, marker=marker, label=f"{run} --print-loss")
    axes.set(xlabel="step", ylabel="CPU ahead of the GPU (ms)")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    with mpl.rc_context({"svg.hashsalt": "traceview", "svg.fonttype": "none"}):
        figure.savefig(HERE / "lead.svg", metadata={"Date": None})


def reports() -> None:
    """HTML and JSON of the large pair, as the command line writes them."""
    for run in RUNS:
        stem = HERE / f"large_{run}"
        outputs = [f"--html={stem}.html", f"--json={stem}.json", "--force"]
        trace = packed("large", run).relative_to(REPOSITORY)
        command = [sys.executable, "-m", "traceview", "report", trace, *outputs]
        subprocess.run(command, check=True, cwd=REPOSITORY)


def write_page() -> None:
    page = HERE / "README.md"
    text = page.read_text()
    for mark, made in (("table", table()), ("machine", machine())):
        start, end = f"<!-- {mark} -->\n", "<!-- end -->"
        between = re.escape(start) + ".*?" + end
        text = re.sub(between, f"{start}{made}\n{end}", text, count=1, flags=re.DOTALL)
    page.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the figures of this page.")
    parser.add_argument("--record", action="store_true", help="record first; needs a GPU and nsys")
    if parser.parse_args().record:
        record()
    picture()
    reports()
    write_page()


if __name__ == "__main__":
    main()

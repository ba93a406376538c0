"""Write the corpus table of docs/ptx-corpus.md: python -m tests.headless.corpus.table"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.headless.corpus.kernels_of import Answer, answer, corpus_kernels
from tests.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "ptx-corpus.md"
MARK, END = "<!-- table -->\n", "<!-- end of table -->\n"


WORKERS = 2


def main() -> None:
    there = [kernel for kernel in corpus_kernels() if kernel.path.is_file()]
    answers = {}
    with ProcessPoolExecutor(WORKERS) as pool:
        # A process of its own for each: CPU time is that of its children, too.
        began = {pool.submit(answer, kernel): kernel for kernel in there}
        for number, done in enumerate(as_completed(began), 1):
            answers[began[done]] = done.result()
            print(f"{number} of {len(there)}: {_row(done.result())}", flush=True)
    listed = [answers[kernel] for kernel in there]
    head = PAGE.read_text().partition(MARK)[0]
    tail = PAGE.read_text().partition(END)[2]
    table = "\n".join((_summary(listed), "", *_rows(listed)))
    PAGE.write_text(f"{head}{MARK}\n{table}\n{END if tail else ''}{tail}")


def _summary(answers: Sequence[Answer]) -> str:
    """What was tried with which versions, and what came out, in a few sentences."""
    done = [each for each in answers if not each.failure]
    keyed = [each for each in done if each.kernel.load]
    checked = [each for each in done if each.kept is not None]
    versions = " and ".join(f"{n} {importlib.metadata.version(n)}" for n in ("torch", "triton"))
    narrow, uncaused = sum(a.narrow for a in done), sum(a.uncaused for a in done)
    return (
        f"{datetime.date.today().isoformat()}, {versions}: {len(done)} of {len(answers)} kernels "
        f"of {len({a.kernel.project for a in answers})} projects answered at the first try, and "
        f"{sum(a.is_unable for a in answers)} needs another Triton, which its answer says with the "
        f"line. The width was right for {sum(a.is_right for a in keyed)} of the {len(keyed)} for "
        f"which the source settles it. Of {narrow} findings on narrow accesses {uncaused} have no "
        f"cause. Of the {sum(a.remedies for a in done)} remedies that promise a width, "
        f"{sum(a.remedies for a in checked)} were compiled by Triton's own `compile`, all of a "
        f"kernel at once: {sum(a.kept or 0 for a in checked)} reach it. {_times(answers)}"
    )


def _times(answers: Sequence[Answer]) -> str:
    cpu, wall = [a.seconds for a in answers], [a.wall_s for a in answers]
    return (
        f"Median {statistics.median(cpu):.1f} s of CPU time, longest {max(cpu):.1f} s; by the "
        f"clock {statistics.median(wall):.1f} s and {max(wall):.1f} s, with {WORKERS} kernels at a "
        f"time on {os.cpu_count()} cores (load {os.getloadavg()[2]:.0f})."
    )


def _rows(answers: list[Answer]) -> list[str]:
    head = (
        "| project | kernel | answered | CPU s | s | widest load | expected | "
        "remedies kept | why not |"
    )
    return [head, "|---|---|---|---:|---:|---:|---|---|---|", *map(_row, answers)]


def _row(each: Answer) -> str:
    expected = " or ".join(map(str, each.kernel.load)) or "open"
    why = each.failure.partition("; ")[0].replace("|", "\\|")[:110]
    how = each.how or "no"
    width = "" if each.load is None else f"{each.load}{'' if each.is_right else ' (wrong)'}"
    name = f"`{each.kernel.name}`"
    times = f"{each.seconds:.1f}", f"{each.wall_s:.1f}"
    kept = f"{'?' if each.kept is None else each.kept} of {each.remedies}" * (each.remedies > 0)
    cells = (each.kernel.project, name, how, *times, width, expected, kept, why)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

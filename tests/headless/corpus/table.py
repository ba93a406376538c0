"""Write the corpus table of docs/ptx-corpus.md: python -m tests.headless.corpus.table"""

from __future__ import annotations

import datetime
import importlib.metadata
import statistics

from tests.headless.corpus.kernels_of import Answer, answer, corpus_kernels
from tests.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "ptx-corpus.md"
MARK = "<!-- table -->\n"


def main() -> None:
    there = [kernel for kernel in corpus_kernels() if kernel.path.is_file()]
    answers = []
    for number, kernel in enumerate(there, 1):
        answers.append(answer(kernel))
        print(f"{number} of {len(there)}: {_row(answers[-1])}", flush=True)
    head = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(head + MARK + "\n" + "\n".join((_summary(answers), "", *_rows(answers))) + "\n")


def _summary(answers: list[Answer]) -> str:
    """What was tried with which versions, in two sentences."""
    done = [each for each in answers if not each.failure]
    keyed = [each for each in done if each.kernel.load]
    right = sum(each.is_right for each in keyed)
    unable = sum(each.is_unable for each in answers)
    seconds = [each.seconds for each in answers]
    versions = " and ".join(f"{n} {importlib.metadata.version(n)}" for n in ("torch", "triton"))
    projects = len({each.kernel.project for each in answers})
    return (
        f"{datetime.date.today().isoformat()}, {versions}: {len(done)} of "
        f"{len(answers)} kernels of {projects} projects answered at the first try, and {unable} "
        "that is for another Triton was told apart with its line. The width was "
        f"right for {right} of the {len(keyed)} for which the source settles it. Median "
        f"{statistics.median(seconds):.1f} s of CPU time, longest {max(seconds):.1f} s."
    )


def _rows(answers: list[Answer]) -> list[str]:
    head = "| project | kernel | answered | CPU s | widest load | expected | why not |"
    return [head, "|---|---|---|---:|---:|---|---|", *map(_row, answers)]


def _row(each: Answer) -> str:
    expected = " or ".join(map(str, each.kernel.load)) or "open"
    why = each.failure.partition("; ")[0].replace("|", "\\|")[:110]
    how = each.how or "no"
    width = "" if each.load is None else f"{each.load}{'' if each.is_right else ' (wrong)'}"
    name = f"`{each.kernel.name}`"
    cells = (each.kernel.project, name, how, f"{each.seconds:.1f}", width, expected, why)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

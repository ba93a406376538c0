"""CPU work between reading results back and the next upload, which cannot be done earlier."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

MS = 1_000_000
WORK = [("/home/user/app", "assign(float*)"), ("/home/user/app", "main")]
LINES = [("/work/search.py", 12, "expand"), ("/work/search.py", 40, "<module>")]


def steps(*parts, often=1, number=40, native=True, ranges=True):
    """Steps of kernels (`k`), copies (bytes by direction, as `D2H 4000`) and 4 ms of work (`w`).

    Only one of `often` steps has its copies.
    """
    export, at = Export(), 10 * MS
    for step in range(number):
        begin = at
        for part in parts:
            if part == "w":
                for time in range(at + MS // 2, at + 4 * MS, MS):
                    (export.native_sample if native else export.python_sample)(
                        time, *(WORK if native else LINES)
                    )
                at += 4 * MS
            elif part == "k":
                export.launch((at, at + 5_000), (at + 8_000, at + 400_000), name="step")
                at += 410_000
            elif step % often == 0:
                kind, size = part.split()
                took = at + 8_000, at + 30_000
                export.copy(
                    (at, took[1] + 2_000), took, bytes=int(size), kind=kind, api="cudaMemcpy_v3020"
                )
                at += 40_000
        if ranges:
            export.range(f"step_{step}", begin - 1_000, at - 2_000)
    return export


def remedy(tmp_path, export):
    said = ask(ANALYSIS, export, tmp_path).findings
    return next(each for each in said if "other work than launching" in each.message).action


@pytest.mark.parametrize("ranges", [False, True])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    "parts",
    [
        ("k", "D2H 500000", "w", "H2D 8000"),
        ("H2D 8000", "k", "D2H 500000", "w"),
        ("w", "H2D 576", "k", "k", "D2H 144"),
        # One of several results may be a single value, read last or first.
        ("k", "D2H 144", "D2H 4", "w", "H2D 576"),
        ("k", "D2H 4", "D2H 144", "w", "H2D 4", "H2D 576"),
        ("k", "D2H 144", "k", "D2H 4", "w", "H2D 576"),
    ],
)
def test_work_between_a_read_back_and_an_upload_cannot_be_done_earlier(
    tmp_path, parts, native, ranges
):
    action = remedy(tmp_path, steps(*parts, native=native, ranges=ranges))
    is_data = "D2H 500000" in parts
    begins = "Compute this on the GPU and leave" if is_data else "Work on several cases at once"
    assert action.startswith(begins)


@pytest.mark.parametrize("ranges", [False, True])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("parts", "often"),
    [
        # A loss is printed, and the next batch is made.
        (("k", "D2H 4", "w", "H2D 8000"), 1),
        (("k", "w", "H2D 8000"), 1),
        (("k", "D2H 8000", "w"), 1),
        (("k", "D2H 8000", "w", "k", "H2D 8000"), 1),
        (("k", "D2H 8000", "H2D 8000", "w"), 1),
        (("k", "D2H 8000", "w", "H2D 8000"), 4),
    ],
)
def test_other_work_can_be_done_earlier(tmp_path, parts, often, native, ranges):
    action = remedy(tmp_path, steps(*parts, often=often, native=native, ranges=ranges))
    assert action.startswith("Take this CPU work out of the")

"""Two programs that share few kernels, as two engines of one model do, made with known times.

Names, numbering, nesting and the order of kernels vary; the time per class and range is the truth.
"""

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from tests.comparison.sides import a_part, a_run
from traceview.traces.comparison.changes import main_changes
from traceview.traces.comparison.decomposition import compare_runs
from traceview.traces.comparison.figures import KernelShape, StepPart
from traceview.traces.comparison.wording import headline

CLASSES = ("gemm", "attention", "elementwise", "normalization")
RANGES = ("prefill", "decode")
SPELLED = {
    "vllm": ("execute/{}_{}", "Model.forward/{}/layer_#"),
    "sglang": ("{}#", "Scheduler/run_batch/{} #/mlp"),
}


def a_kernel(name: str, time_ns: int, calls: int, group: str, place: str = "", grid: int = 1):
    part = a_part(
        "kernel", name, time_ns, calls, group, place, KernelShape((grid, 1, 1), (128, 1, 1))
    )
    return replace(part, symbol=name)


def engine(name: str, random: Random, *, own_ranges: bool) -> tuple[list[StepPart], dict]:
    """Parts of a run of one engine, and the truth: time by class and range."""
    parts, truth = [], {}
    for kind in CLASSES:
        for place in RANGES:
            for number in range(random.randint(1, 4)):
                time, calls = random.randint(50, 9_000), random.randint(1, 40)
                key = kind, place if own_ranges else ""
                truth[key] = truth.get(key, 0) + time
                path = random.choice(SPELLED[name]).format(place, number) if own_ranges else ""
                kernel = f"{name}_{kind}_{random.randint(0, 10**6)}"
                parts.append(a_kernel(kernel, time, calls, kind, path, random.randint(1, 99)))
    for cause in ("launch-late", "sync-drain"):
        time = random.randint(10, 5_000)
        truth[cause, ""] = time
        parts.append(a_part("idle", cause, time, 3, place=f"{name}.py:{random.randint(1, 99)}"))
    random.shuffle(parts)
    return parts, truth


@pytest.mark.parametrize("seed", range(12))
def test_engines_are_compared_by_class_and_range(seed: int):
    random, ranges = Random(seed), bool(seed % 2)
    sides = [engine(name, random, own_ranges=ranges) for name in SPELLED]
    runs = [a_run(f"{n}.json", parts) for n, (parts, _) in zip(SPELLED, sides, strict=True)]
    comparison = compare_runs([runs[0]], [runs[1]])
    assert sum(part.delta_ns for part in comparison.parts) == comparison.delta_ns
    found = {(part.group or part.name, part.place): part for part in comparison.parts}
    assert found.keys() == sides[0][1].keys()
    for key, part in found.items():
        before, after = (Fraction(truth[key], 2) for _, truth in sides)
        assert (part.before_ns, part.after_ns) == (before, after)
        assert part.change == "same"
    assert "they are different programs, compared by class" in comparison.notes[-1]
    assert "as often" not in headline(comparison)
    said = " ".join(change.text for change in main_changes(comparison))
    assert not any(f"{name}_" in said for name in SPELLED)


@pytest.mark.parametrize("shared", [0, 3, 9, 12, 40, 90])
def test_programs_that_share_enough_kernels_are_compared_kernel_by_kernel(shared: int):
    before, after = (
        [
            a_kernel("both", 10 * shared, 2, "gemm"),
            a_kernel(f"of_{side}", 1_000 - 10 * shared, 7, "attention"),
        ]
        for side in ("before", "after")
    )
    comparison = compare_runs([a_run("a", before)], [a_run("b", after)])
    names = {part.name for part in comparison.parts if part.kind == "kernel"}
    assert names == ({""} if shared < 10 else {"both", "of_before", "of_after"})


def test_a_class_on_one_side_is_new_or_gone():
    before = a_run("a", [a_kernel("k1", 9_000, 2, "gemm")])
    after = a_run("b", [a_kernel("k2", 9_000, 2, "attention")])
    said = [change.text for change in main_changes(compare_runs([before], [after]))]
    assert any(text.startswith("attention kernels are new") for text in said)
    assert any(text.startswith("gemm kernels are gone") for text in said)

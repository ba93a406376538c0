"""Small comparisons by hand, whose every number is known."""

from fractions import Fraction

from traceview.traces.comparison.comparison import (
    Certainty,
    CountDifference,
    EnvironmentDifference,
    PartDifference,
    RunComparison,
)
from traceview.traces.comparison.figures import KernelShape, RunFigures, StepPart

SCALAR = KernelShape((48, 1, 1), (128, 1, 1), 32, 0, 0.5, 32, "fp32")
VECTOR = KernelShape((48, 1, 1), (128, 1, 1), 32, 0, 0.5, 128, "fp32")


def a_part(kind="kernel", name="gelu", time_ns=1_000, calls=2, group="", place="", shape=None):
    return StepPart(kind, group, name, place, time_ns, time_ns, calls, shape)


def a_run(name="before.sqlite", parts=None, steps=2, digest=None, **environment):
    parts = (a_part(),) if parts is None else tuple(parts)
    window = sum(part.time_ns for part in parts)
    each = (window // steps,) * (steps - 1)
    return RunFigures(
        name,
        name if digest is None else digest,
        "nsys",
        {"gpu": "NVIDIA H200", **environment},
        devices=1,
        has_steps=True,
        step_ns=(*each, window - sum(each)),
        window_ns=window,
        parts=parts,
    )


def a_difference(
    name, before_ns, after_ns, calls=(1, 1), kind="kernel", group="", place="", change="same",
    shapes=(None, None),
):  # fmt: skip
    sides = [
        StepPart(kind, group, name, place, int(time), int(time), int(count), shape)
        if time or count
        else None
        for time, count, shape in zip((before_ns, after_ns), calls, shapes, strict=True)
    ]
    return PartDifference(
        kind, group, name, place, change, Fraction(before_ns), Fraction(after_ns),
        Fraction(calls[0]), Fraction(calls[1]), *sides,
    )  # fmt: skip


def a_certainty(basis="runs", runs=(5, 5), low=380_000, high=630_000):
    return Certainty(basis, *runs, 0.95, low, high, 0.008 if basis == "runs" else None)


DRAIN = a_difference(
    "sync-drain", 0, 3_100_000, (0, 1), "idle", place="train.py:75", change="appeared"
)
GELU = a_difference(
    "gelu", 240_000, 480_000, (12, 12), group="elementwise", change="reconfigured",
    shapes=(VECTOR, SCALAR),
)  # fmt: skip
GEMM = a_difference("ampere_sgemm", 9_000_000, 8_900_001, (24, 24), group="gemm")


def a_comparison(parts=(DRAIN, GELU, GEMM), certainty=None, environment=(), counts=(), **more):
    runs = {"before": (a_run("before.sqlite"),), "after": (a_run("after.sqlite"),), **more}
    return RunComparison(
        runs["before"],
        runs["after"],
        sum((part.before_ns for part in parts), Fraction(0)),
        sum((part.after_ns for part in parts), Fraction(0)),
        certainty or a_certainty(),
        tuple(parts),
        tuple(counts),
        tuple(environment),
    )


TORCH = EnvironmentDifference("torch", "2.10.0", "2.11.0", refuses=False)
SYNCS = CountDifference("synchronizations", Fraction(0), Fraction(1), varies=False)

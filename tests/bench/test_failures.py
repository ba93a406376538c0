"""Where the user's own functions fail: one line that says where."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from tests.bench.operations import OPERATION
from traceview.bench import Asked, Version, measure
from traceview.errors import InputError


def broken(size, dtype, device, rows: int = 1):
    return {}[size]


@pytest.mark.parametrize("sweep", [None, "rows=1,2,3"])
def test_the_line_of_the_users_file_is_told(sweep):
    operation = replace(OPERATION, inputs=broken)
    line = broken.__code__.co_firstlineno + 1
    with pytest.raises(InputError) as failed:
        measure(operation, Asked(sizes=[3], sweep=sweep))
    said = f"inputs or check of double raised KeyError at line {line} of test_failures.py: 3"
    assert str(failed.value) == said


def test_what_a_version_does_not_take_has_no_load_width(monkeypatch):
    """A width is told of the source alone; of types that it is not for it would be a fable."""
    versions = tuple(
        replace(version, cuda_source="__global__ void k() {}")
        for version in OPERATION.versions
        if version.name in ("fp32-only", "cuda")
    )
    asked = []
    monkeypatch.setattr(
        "traceview.bench.comparison.widths_of",
        lambda _, __, keys, *more: asked.extend(keys) or {},
    )
    report = measure(
        replace(OPERATION, versions=versions),
        Asked(sizes=[8], dtypes=["float32", "bfloat16"], trials=1),
        path="x.py",
    )
    assert [(row.dtype, row.version, row.status) for row in report.rows] == [
        ("float32", "cuda", "skipped"),
        ("float32", "fp32-only", "timed"),
        ("bfloat16", "cuda", "skipped"),
        ("bfloat16", "fp32-only", "unsupported"),
    ]
    assert asked == [(8, "float32", "cuda"), (8, "float32", "fp32-only"), (8, "bfloat16", "cuda")]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"inputs": lambda size, *_: OPERATION.inputs(size, *_)[0]}, "gives a Tensor; return a tu"),
        ({"inputs": lambda *_: None}, "inputs of double gives a NoneType; return a tuple"),
        ({"bytes_moved": lambda *_: float("nan")}, "bytes_moved or flop of double raised Value"),
        ({"flop": lambda *_: None}, "bytes_moved or flop of double raised TypeError"),
        ({"versions": ()}, "double has no versions"),
        ({"tolerances": {}}, "double has no data types in tolerances"),
        ({"versions": OPERATION.versions[:1] * 2}, "double has two versions 'manual'; rename one"),
    ],
)
def test_an_operation_that_cannot_be_measured(part, said):
    with pytest.raises(InputError, match=said):
        measure(replace(OPERATION, **part), Asked(sizes=[3], trials=1))


@pytest.mark.parametrize("sweep", [None, "rows=1,2,3"])
def test_an_operation_without_sizes_is_asked_for_one(sweep):
    bare = replace(
        OPERATION, sizes=(), small_sizes=(), versions=(Version("v", lambda x, _: x * 2),)
    )
    with pytest.raises(InputError, match="double has no sizes of its own; ask for one: --size"):
        measure(bare, Asked(sweep=sweep, trials=1))
    assert measure(bare, Asked(sweep="size=1,2,3", trials=1)).fits


@pytest.mark.parametrize("asked", [{"trials": 0}, {"warmup": -1}, {"trials": "x"}])
def test_counts_that_make_no_sense_are_no_fault_of_a_version(asked):
    with pytest.raises(InputError, match="ask for one trial or more"):
        measure(OPERATION, Asked(**{"sizes": [3], **asked}))

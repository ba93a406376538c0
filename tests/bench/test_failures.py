"""Errors in the user's own functions: one line that names the place."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from tests.bench.operations import OPERATION
from traceview.base.errors import InputError
from traceview.trials.bench import BenchRequest, Version, measure


def broken(size, dtype, device, rows: int = 1):
    return {}[size]


@pytest.mark.parametrize("sweep", [None, "rows=1,2,3"])
def test_the_line_of_the_users_file_is_named(sweep):
    operation = replace(OPERATION, inputs=broken)
    line = broken.__code__.co_firstlineno + 1
    with pytest.raises(InputError) as failed:
        measure(operation, BenchRequest(sizes=[3], sweep=sweep))
    message = f"inputs or check of double raised KeyError at line {line} of test_failures.py: 3"
    assert str(failed.value) == message


def test_unsupported_inputs_have_no_load_width(monkeypatch):
    """The width is read from the source alone; for an unsupported data type it would be made up."""
    versions = tuple(
        replace(version, cuda_source="__global__ void k() {}")
        for version in OPERATION.versions
        if version.name in ("fp32-only", "cuda")
    )
    requested = []
    monkeypatch.setattr(
        "traceview.trials.bench.comparison.widths_of",
        lambda _, __, keys, *more: requested.extend(keys) or {},
    )
    report = measure(
        replace(OPERATION, versions=versions),
        BenchRequest(sizes=[8], dtypes=["float32", "bfloat16"], trials=1),
        path="x.py",
    )
    assert [(row.dtype, row.version, row.status) for row in report.rows] == [
        ("float32", "cuda", "skipped"),
        ("float32", "fp32-only", "timed"),
        ("bfloat16", "cuda", "skipped"),
        ("bfloat16", "fp32-only", "unsupported"),
    ]
    assert requested == [
        (8, "float32", "cuda"),
        (8, "float32", "fp32-only"),
        (8, "bfloat16", "cuda"),
    ]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            {"inputs": lambda size, *_: OPERATION.inputs(size, *_)[0]},
            "returns a Tensor; return a tu",
        ),
        ({"inputs": lambda *_: None}, "inputs of double returns a NoneType; return a tuple"),
        ({"bytes_moved": lambda *_: float("nan")}, "bytes_moved or flop of double raised Value"),
        ({"flop": lambda *_: None}, "bytes_moved or flop of double raised TypeError"),
        ({"versions": ()}, "double has no versions"),
        ({"tolerances": {}}, "double has no data types in tolerances"),
        (
            {"versions": OPERATION.versions[:1] * 2},
            "double has two versions named 'manual'; rename one",
        ),
    ],
)
def test_an_operation_that_cannot_be_measured(part, message):
    with pytest.raises(InputError, match=message):
        measure(replace(OPERATION, **part), BenchRequest(sizes=[3], trials=1))


@pytest.mark.parametrize("sweep", [None, "rows=1,2,3"])
def test_an_operation_without_sizes_needs_one(sweep):
    bare = replace(
        OPERATION, sizes=(), small_sizes=(), versions=(Version("v", lambda x, _: x * 2),)
    )
    with pytest.raises(InputError, match="double has no default sizes; pass one: --size"):
        measure(bare, BenchRequest(sweep=sweep, trials=1))
    assert measure(bare, BenchRequest(sweep="size=1,2,3", trials=1)).fits


@pytest.mark.parametrize("options", [{"trials": 0}, {"warmup": -1}, {"trials": "x"}])
def test_invalid_counts_are_an_error(options):
    with pytest.raises(InputError, match="request at least one trial"):
        measure(OPERATION, BenchRequest(**{"sizes": [3], **options}))

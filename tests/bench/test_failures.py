"""Where the user's own functions fail: one line that says where."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from tests.bench.operations import OPERATION
from traceview.bench import Asked, measure
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

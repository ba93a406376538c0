"""Matrix products in Triton's interpreter, and on a GPU: shapes, tiles, precisions, 8 bits."""

import pytest

from tests.gpu.launched_ptx import has_gpu
from tests.kernels.requests import python

pytest.importorskip("torch")
pytest.importorskip("triton")

# As shares of the largest result. In fp32 the sums differ; otherwise it is the result's rounding.
MOST = {
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "float32": 1e-5,
    "float8_e4m3fn": 1.6e-2,
    "int8": 8e-3,
}


def wrong(rows: list[list]) -> list[list]:
    return [row for row in rows if not row[3] <= most(row)]


def most(row: list) -> float:
    return 1e-3 if row[:2] == ["precision", "tf32"] else MOST[row[2]]


@pytest.mark.programs
def test_products_in_the_interpreter():
    rows = python("-m", "tests.kernels.matmul_numbers", "interpreter")
    assert wrong(rows) == []
    names = {row[0] for row in rows}
    assert {"triton-naive", "triton-grouped", "triton-autotuned", "triton-persistent"} <= names
    assert {"grouped", "persistent", "precise", "fast", "precision"} <= names
    assert {row[2] for row in rows} == set(MOST)


@pytest.mark.gpu
def test_products_on_a_gpu():
    if not has_gpu():
        pytest.skip("launches kernels: no NVIDIA GPU here")
    rows = python("-m", "tests.kernels.matmul_numbers", "gpu", interpret=False)
    assert wrong(rows) == []
    assert any("2053" in row[1] for row in rows)
    errors = {row[1]: row[3] for row in rows if row[0] == "precision"}
    # TF32 rounds to 10 bits, three products of it to more than 20: the choice is really made.
    assert errors["tf32"] > 20 * errors["tf32x3"]

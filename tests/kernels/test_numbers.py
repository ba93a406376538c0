"""Every Triton kernel's numbers, in Triton's interpreter: odd sizes, and all types it takes."""

import pytest

import kernels
from tests.kernels.numbers import SHAPES
from tests.kernels.requests import python

pytest.importorskip("torch")
pytest.importorskip("triton")


# Importing torch and Triton takes longer than most operations do: a process for several of them.
GROUPS = [kernels.operations()[first::4] for first in range(4)]


@pytest.mark.programs
@pytest.mark.parametrize("names", GROUPS, ids=" ".join)
def test_every_version_agrees_with_the_reference(names):
    rows = python("-m", "tests.kernels.numbers", "interpreter", *names)
    assert [row for row in rows if row.get("wrong") or row.get("changed")] == []
    ran = [row for row in rows if "error" in row and row["version"].startswith("triton")]
    # No version of ours was left out, none of its types, and no operation.
    ours = {(row["name"], row["version"]) for row in rows if row["version"].startswith("triton")}
    assert {(row["name"], row["version"]) for row in ran} == ours
    types = {(row["name"], row["dtype"]) for row in rows}
    assert {(row["name"], row["dtype"]) for row in ran} == types
    assert {row["name"] for row in ran} == set(names)
    assert {row["name"] for row in ran if "shapes" in row} == set(names) & set(SHAPES)
    for name in names:
        sizes = {row["size"] for row in ran if row["name"] == name and "size" in row}
        assert any(size % 2 for size in sizes), name
        assert any(size % 16 == 0 for size in sizes), name


SPECIAL = """
import json, torch
from kernels import softmax
inf, nan = float("inf"), float("nan")
x = torch.randn(7, 5000, generator=torch.Generator().manual_seed(1))
x[0] = -inf
x[1, :4999] = -inf
x[2, 17] = inf
x[3, 4998] = nan
x[4] += 1000
x[5, ::2] = -inf
wanted = torch.softmax(x.double(), dim=1)
for run in (softmax.with_triton, softmax.with_online):
    given = run(x).double()
    close = torch.allclose(given, wanted, atol=1e-7, rtol=1e-5, equal_nan=True)
    print(json.dumps([close, given[0].isnan().all().item(), given[1, 4999].item()]))
"""


@pytest.mark.programs
def test_softmax_of_rows_with_infinities_and_nan():
    assert python("-c", SPECIAL) == [[True, True, 1.0]] * 2


FIXED_ORDER = """
import json, torch
from kernels import dispatch
x = torch.rand(9000, generator=torch.Generator().manual_seed(1))
total, again = (dispatch("sum", "triton-two-pass")(x) for _ in range(2))
print(json.dumps([total.dtype == torch.float32, bool(total == again)]))
ones = torch.ones(70_000, dtype=torch.float16)
print(json.dumps([float(dispatch("sum", v)(ones)) for v in ("triton-atomic", "triton-two-pass")]))
most = torch.full((5,), 2**31 - 1, dtype=torch.int32)
print(json.dumps([int(dispatch("sum", v)(most)) for v in ("triton-atomic", "triton-two-pass")]))
"""


@pytest.mark.programs
def test_sums_hold_more_than_their_elements_could():
    same, halves, whole = python("-c", FIXED_ORDER)
    assert same == [True, True]
    assert halves == [70_000.0] * 2
    assert whole == [5 * (2**31 - 1)] * 2

"""Every operation, version and data type on a GPU, at odd sizes and at a large one."""

import pytest

import kernels
from tests.gpu.launched_ptx import has_gpu
from tests.kernels.requests import python


@pytest.mark.gpu
@pytest.mark.parametrize("name", kernels.operations())
def test_every_version_agrees_with_the_reference_on_a_gpu(name):
    if not has_gpu():
        pytest.skip("launches kernels: no NVIDIA GPU here")
    rows = python("-m", "tests.kernels.numbers", "gpu", name, interpret=False)
    assert [row for row in rows if row.get("wrong") or row.get("changed")] == []
    ran = {row["version"] for row in rows if "error" in row}
    assert ran == {row["version"] for row in rows}


SECOND = """
import json, torch
from kernels import dispatch
from kernels.flash_attention_backward import attention
if torch.cuda.device_count() < 2:
    print(json.dumps("one"))
else:
    x = torch.randn(100_000, device="cuda:1")
    for version in ("cuda-scalar", "cuda-vector", "triton"):
        off = (dispatch("gelu", version)(x) - dispatch("gelu", "torch")(x)).abs().max()
        print(json.dumps([version, float(off)]))
    q = torch.randn(1, 2, 200, 64, device="cuda:1", dtype=torch.float16, requires_grad=True)
    attention(q, q, q).sum().backward()
    print(json.dumps(["attention", 0.0 if bool(q.grad.isfinite().all()) else 1.0]))
"""


@pytest.mark.gpu
def test_tensors_that_are_not_on_the_current_gpu():
    if not has_gpu():
        pytest.skip("launches kernels: no NVIDIA GPU here")
    found = python("-c", SECOND, interpret=False)
    if found == ["one"]:
        pytest.skip("needs a second GPU")
    assert len(found) == 4
    assert [each for each in found if each[1] > 1e-5] == []

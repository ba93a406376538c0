"""Every operation, version and data type on a GPU, at odd sizes and at a large one."""

import pytest

import kernels
from tests.gpu.launched_ptx import has_gpu
from tests.kernels.asked import python


@pytest.mark.gpu
@pytest.mark.parametrize("name", kernels.operations())
def test_every_version_agrees_with_the_reference_on_a_gpu(name):
    if not has_gpu():
        pytest.skip("launches kernels: no NVIDIA GPU here")
    rows = python("-m", "tests.kernels.numbers", "gpu", name, interpret=False)
    assert [row for row in rows if row.get("wrong") or row.get("changed")] == []
    ran = {row["version"] for row in rows if "error" in row}
    assert ran == {row["version"] for row in rows}

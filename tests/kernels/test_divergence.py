"""What the comments in kernels/divergence.py say of the instructions, held against the SASS."""

import re

import pytest

from tests.places import REPOSITORY
from traceview.kernels.inspect.python_targets import compile_python
from traceview.kernels.toolchain.listings import code_of

pytestmark = pytest.mark.programs
pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("elftools")


@pytest.fixture(scope="module")
def ffma():
    """Operands of the FFMA of each Triton kernel on sm_90."""
    compiled = compile_python(str(REPOSITORY / "kernels" / "divergence.py"))
    sass = {each.name: code_of(each).sass for each in compiled}
    if None in sass.values():
        pytest.skip("needs ptxas and nvdisasm, which Triton's wheel brings on Linux")
    return {
        name: [each.operands for each in code.instructions if each.opcode == "FFMA"]
        for name, code in sass.items()
    }


def test_of_both_ways_only_the_one_that_is_taken_is_left(ffma):
    assert len(ffma["both_ways_kernel"]) == len(ffma["branch_free_kernel"]) > 0


def test_triton_has_a_number_in_every_ffma_and_so_reads_two_registers(ffma):
    assert len(ffma) == 3
    for operands in ffma.values():
        assert {len(re.findall(r"\bR\d+", each)) for each in operands} == {3}
        assert all("0.0009765625" in each for each in operands)

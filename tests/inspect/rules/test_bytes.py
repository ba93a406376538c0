"""CUDA C++ that assembles words from bytes, at addresses that may be any."""

import pytest

import traceview
from tests.inspect.rules.written_ptx import need, need_compiler

KERNEL = """
__global__ void words(const unsigned char* p, const int* at, unsigned* out, int n, int first) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {{
    const unsigned char* q = p + {start};
    out[i] = {word};
  }}
}}
"""
STARTS = {"words": "4 * i", "records": "7 * i", "offset": "first + 4 * i", "gather": "at[i]"}
LITTLE, BIG = range(4), range(3, -1, -1)


def loads(tmp_path, start, word):
    need("ptxas", "nvdisasm")
    need_compiler()
    (tmp_path / "k.cu").write_text(KERNEL.format(start=start, word=word))
    (kernel,) = traceview.inspect_ptx(tmp_path / "k.cu").kernels
    return [f for f in kernel.findings if f.evidence.values.get("widths") == "4 × 8 bits"]


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("order", [LITTLE, BIG], ids=["little", "big"])
def test_bytes_of_a_word_are_left_unless_they_are_known_to_be_aligned(tmp_path, start, order):
    parts = (f"(unsigned)q[{at}] << {8 * shift}" for shift, at in enumerate(order))
    (found,) = loads(tmp_path, start, " | ".join(f"({part})" for part in parts))
    assert found.severity == "info"
    assert "assembles words from bytes" in found.message
    assert found.action.startswith("Leave it where the address or the order")


@pytest.mark.parametrize("start", ["64 * i", "n * i"])
def test_bytes_of_distant_threads_are_told_as_before(tmp_path, start):
    word = "q[0] | (q[1] << 8) | (q[2] << 16) | (q[3] << 24)"
    (found,) = loads(tmp_path, start, word)
    assert "apart" in found.message
    assert found.severity != "info"


def test_bytes_that_are_added_are_no_word(tmp_path):
    for found in loads(tmp_path, "4 * i", "q[0] + q[1] + q[2] + q[3]"):
        assert "assembles" not in found.message

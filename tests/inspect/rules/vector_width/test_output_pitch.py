"""A size that is the pitch of an output's rows is not to be padded, under any name."""

import pytest

import traceview

pytest.importorskip("triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, {size}, {source}, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    value = tl.load(x_ptr + row * {source} + i)
    tl.store(y_ptr + row * {size} + i, value, mask=i < {size})
"""


@pytest.mark.parametrize(
    ("size", "source", "is_kept"),
    [
        ("OW", "W", True),
        ("n_out", "n", True),
        ("cols", "pitch", True),
        # A stride is no size, and what loads use as well is not the output's alone.
        ("stride_y", "stride_x", False),
        ("out_stride", "n", False),
    ],
)
def test_the_size_of_an_output_is_left(tmp_path, size, source, is_kept):
    (tmp_path / "k.py").write_text(KERNEL.format(size=size, source=source))
    report = traceview.inspect_ptx(
        f"{tmp_path}/k.py:kernel", signature="*fp32:16, *fp32:16, i32, i32:16, 1024"
    )
    (stores,) = (f for f in report.kernels[0].findings if "stores" in f.message)
    assert stores.evidence.values["proven"]
    assert (stores.severity == "info") == is_kept
    assert (stores.action or "").startswith(f"Leave {size}" if is_kept else f"Pad {size}")


def test_a_size_of_the_input_too_may_be_padded(tmp_path):
    (tmp_path / "k.py").write_text(KERNEL.format(size="n", source="m").replace("* m", "* n"))
    report = traceview.inspect_ptx(
        f"{tmp_path}/k.py:kernel", signature="*fp32:16, *fp32:16, i32, i32, 1024"
    )
    moves = [f for f in report.kernels[0].findings if "stores" in f.message]
    assert moves[0].action.startswith("Pad n")

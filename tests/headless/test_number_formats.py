"""The bits of Triton's element types decode to the numbers that they stand for."""

import numpy as np
import pytest

from traceview.kernels.headless.worker.sparse_memory import NumberFormat


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("i8", np.array([-128, -1, 0, 127], np.int8)),
        ("u8", np.array([0, 127, 255], np.uint8)),
        ("i1", np.array([0, 1], np.uint8)),
        ("i16", np.array([-(2**15), 7], np.int16)),
        ("i32", np.array([-(2**31), -1, 2**31 - 1], np.int32)),
        ("u32", np.array([0, 2**32 - 1], np.uint32)),
        ("i64", np.array([-5, 2**40], np.int64)),
        ("fp16", np.array([-1.5, 0.25], np.float16)),
        ("fp32", np.array([-1.5, 3e8], np.float32)),
        ("fp64", np.array([-1.5, 1e-200], np.float64)),
    ],
)
def test_bits_decode_to_their_numbers(name: str, numbers: np.ndarray) -> None:
    bits = numbers.view(f"u{numbers.itemsize}")
    assert NumberFormat(name).decoded(bits).tolist() == numbers.astype(np.float64).tolist()


def test_bf16_is_the_upper_half_of_fp32() -> None:
    bits = np.array([0x3F80, 0xC000], np.uint16)
    assert NumberFormat("bf16").decoded(bits).tolist() == [1.0, -2.0]

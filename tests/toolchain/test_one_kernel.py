"""A file of CUDA C++ whose kernels together take nvcc long: one of them alone is compiled."""

import pytest

from traceview.kernels.toolchain.device_code import DeviceCode

HEADS = [
    'extern "C" __global__\nvoid {}(const float* x, float* y)',
    "__global__ void __launch_bounds__(128, 2) {}(float* y, int n = 4)",
    "template <class T, int N = 2>\nstatic __global__ void {}(T* y)",
]
BODY = """ {{
#ifdef ROWS
  y[0] = helper("}}", {0});
#else
  if (y) {{ y[1] = '{{'; }}
#endif
}}
"""
BEFORE = "__device__ int helper(const char* text, int n);\n__global__ void second(float*);\n"


@pytest.mark.parametrize("wanted", ["first", "second", "third"])
@pytest.mark.parametrize("turn", range(3))
def test_other_kernels_do_nothing_and_lines_stay(wanted, turn):
    heads = HEADS[turn:] + HEADS[:turn]
    names = ("first", "second", "third")
    text = f"namespace of {{\n{BEFORE}"
    for number, (head, name) in enumerate(zip(heads, names, strict=True)):
        text += head.format(name) + BODY.format(number)
    text += "}  // namespace\nvoid launch() { of::first<<<1, 32>>>(nullptr, nullptr); }\n"
    first, *lines = DeviceCode("k.cu", text).with_one_kernel(wanted).written().splitlines()
    assert first == '#line 1 "k.cu"'
    kept = [("y[" in line, at) for at, line in enumerate(lines) if "y[" in line]
    assert len(lines) == len(text.splitlines())
    assert len(kept) == 2
    assert f", {names.index(wanted)});" in lines[kept[0][1]]
    assert [line for line in lines if line.startswith("#")] == [
        "#ifdef ROWS",
        "#else",
        "#endif",
    ] * 3
    assert sum(line.count("{") - line.count("}") for line in lines) == 0
    assert lines[-1] == text.splitlines()[-1]


@pytest.mark.parametrize("name", ["fourth", "_ZN2of5firstEPKfPf"])
def test_without_such_a_kernel_nothing_is_left_out(name):
    code = DeviceCode("k.cu", HEADS[0].format("first") + BODY.format(0))
    assert code.with_one_kernel(name) == code

"""PTX of other compilers than Triton: names, lines and advice, each compiled here."""

import shutil
import subprocess
import sys

import pytest

import traceview

SOURCE = """namespace ops {
template <class T, int V> struct alignas(sizeof(T) * V) Pack { T v[V]; };
template <class T, int V>
__global__ void scale(const Pack<T, V>* x, Pack<T, V>* y, T a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Pack<T, V> p = x[i];
    for (int j = 0; j < V; j++) p.v[j] *= a;
    y[i] = p;
}
template __global__ void scale<float, 1>(const Pack<float, 1>*, Pack<float, 1>*, float);
template __global__ void scale<float, 4>(const Pack<float, 4>*, Pack<float, 4>*, float);
}
"""
NUMBA = """import sys
from numba import cuda, types
def twice(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = x[i] * types.float32(2)
array = types.float32[::1]
ptx, _ = cuda.compile(twice, (array, array, types.int32), cc=(9, 0), device=False, lineinfo=True,
                      abi="numba", output="ptx")
open(sys.argv[1], "w").write(ptx if isinstance(ptx, str) else ptx.decode())
"""


def global_widths(kernel):
    """Lines and widths of loads and stores of global memory in the PTX."""
    return {
        (access.kind, access.source.line, access.width_bits)
        for access in kernel.accesses
        if access.level == "ptx" and access.space == "global"
    }


def advice(kernel):
    return " ".join(finding.action for finding in kernel.findings)


def test_templates_of_nvcc(tmp_path):
    if not shutil.which("nvcc"):
        pytest.skip("no nvcc here")
    (tmp_path / "scale.cu").write_text(SOURCE)
    command = ["nvcc", "-arch=sm_90", "-lineinfo", "-ptx", "-o", "scale.ptx", "scale.cu"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"nvcc does not work here: {made.stderr[:200]}")
    report = traceview.inspect_ptx(tmp_path / "scale.ptx", num_warps=4)
    found = {kernel.short_name: kernel for kernel in report.kernels}
    if not any("<" in name for name in found):
        pytest.skip("nothing here demangles C++ names")
    assert set(found) == {"ops::scale<float, 1>", "ops::scale<float, 4>"}
    scalar, vector = found["ops::scale<float, 1>"], found["ops::scale<float, 4>"]
    assert global_widths(vector) == {("load", 6, 128), ("store", 8, 128)}
    assert {width for _, _, width in global_widths(scalar)} == {32}
    assert scalar.demangled_name == (
        "void ops::scale<float, 1>(ops::Pack<float, 1> const*, ops::Pack<float, 1>*, float)"
    )
    assert vector.findings == ()
    assert "float4" in advice(scalar)
    assert "num_warps" not in advice(scalar)
    chosen = traceview.inspect_ptx(tmp_path / "scale.ptx", kernel="ops::scale<float, 4*")
    assert [kernel.short_name for kernel in chosen.kernels] == ["ops::scale<float, 4>"]


def test_kernels_of_numba_cuda(tmp_path):
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    (tmp_path / "twice.py").write_text(NUMBA)
    command = [sys.executable, "twice.py", "twice.ptx"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"numba-cuda cannot compile here: {made.stderr[-200:]}")
    (kernel,) = traceview.inspect_ptx(tmp_path / "twice.ptx", num_warps=4).kernels
    assert kernel.short_name.endswith("twice")
    assert "[abi:" not in kernel.short_name
    assert {(kind, line) for kind, line, _ in global_widths(kernel)} == {("load", 6), ("store", 6)}
    assert "num_warps" not in advice(kernel)

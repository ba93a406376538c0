"""What scripts for a newer Triton, or with cuBLAS as reference, ask of Triton."""

import pytest

from traceview.kernels.inspect.python_targets import compile_python

pytest.importorskip("torch", reason="runs a script that imports PyTorch")
pytest.importorskip("triton", reason="compiles with Triton", exc_type=ImportError)
SCRIPT = """
import torch
import triton
import triton.language as tl
from triton._C.libtriton import nvidia

target = triton.runtime.driver.active.get_current_target()
assert target.is_cuda_backend and target.is_cuda_backend() and not target.is_hip_backend
assert not hasattr(target, "anything_else")

@triton.autotune([triton.Config({"BLOCK": size}) for size in (256, 512, 1024)], key=["n"])
@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 1.0, mask=at < n)

a = torch.empty(64, 64, device="cuda", dtype=torch.float16)
cublas = nvidia.cublas.CublasLt(torch.empty(1024, device="cuda", dtype=torch.uint8))
cublas.matmul(a, a, a)
fill[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](a, 4096)
"""


def test_a_script_with_cublas_runs_and_all_configurations_are_compiled(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    kernels = compile_python(str(path))
    blocks = [a.value for kernel in kernels for a in kernel.arguments if a.name == "BLOCK"]
    # One is compiled in another process, and each is reported once.
    assert sorted(blocks) == [256, 512, 1024]

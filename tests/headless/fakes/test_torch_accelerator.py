"""torch.accelerator, and what else a script may ask of the GPU that is pretended."""

import importlib.util

import pytest

from traceview.kernels.inspect.python_targets import compile_python

SCRIPT = """\
import torch, triton, triton.language as tl

@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)

gpu = torch.accelerator
assert gpu.is_available() and gpu.device_count() == 1
assert gpu.current_accelerator() == gpu.current_accelerator(True) == torch.device("cuda")
gpu.set_device_index(gpu.current_device_index())
gpu.synchronize()
assert gpu.current_stream().query() and not gpu.current_stream().is_capturing()
assert torch.cuda.memory_stats()["num_ooms"] == 0 and torch.cuda.memory_summary() == ""
with torch.cuda.nvtx.range("step"):
    x = torch.empty(4096, device=gpu.current_accelerator())
    fill[(4,)](x, 4096, BLOCK=1024)
dataset = torch.utils.data.TensorDataset(torch.zeros(4, 2))
for (batch,) in torch.utils.data.DataLoader(dataset, pin_memory=True):
    assert batch.cuda(non_blocking=True).is_cuda
"""


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None,
    reason="runs a script that uses PyTorch and Triton",
)
def test_a_script_that_asks_for_whatever_gpu_there_is(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # unset, Triton 3.9 warns of its own
    (tmp_path / "script.py").write_text(SCRIPT)
    notes = []
    (compiled,) = compile_python(str(tmp_path / "script.py"), note=notes.append)
    assert (compiled.name, compiled.launches) == ("fill", 1)
    assert notes == ["script.py: 1 kernel compiled as launched"]
    assert "Warning" not in capfd.readouterr().err

"""The script of a launch runs by itself: compiled without a GPU, and in Triton's interpreter."""

import subprocess
import sys

import pytest

from tests.inspect.targets.python_scripts import HEADER, needs_torch, needs_triton
from tests.ptx.compiled_kernels import a_compiled
from traceview.cli import run
from traceview.errors import InputError
from traceview.inspect.reproducer import reproducer

PROGRAM = """
import torch
from helpers import halved

STEP = tl.constexpr(2)

@triton.jit
def fill(x, y, bias, n, stride, BLOCK: tl.constexpr, TYPE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at * stride, mask=at < n, other=0.0)
    if bias is not None:
        value += tl.load(bias)
    tl.store(y + at, halved(value).to(TYPE) + STEP, mask=at < n)

x = torch.empty(1001, 4, device="cuda", dtype=torch.float16)
y = torch.empty(4001, device="cuda")[1:]
fill[(4,)](x[:, 1], y, None, 1001, x.stride(0), BLOCK=256, TYPE=tl.float32, num_warps=2)
"""
HELPERS = """
import triton

@triton.jit
def halved(value):
    return value / 2
"""


@pytest.mark.long
@needs_triton
@needs_torch
def test_it_needs_nothing_of_the_program(tmp_path, capfd):
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "train.py").write_text(HEADER + PROGRAM)
    (folder / "helpers.py").write_text(HELPERS)
    path = tmp_path / "alone.py"
    line = ["ptx", str(folder / "train.py"), "--reproducer", str(path), "--json"]
    assert run(line) == 0
    assert run(line) == 1
    assert "alone.py exists" in capfd.readouterr().err
    text = path.read_text()
    assert "'x': tensor([1001], [4], torch.float16, False, device)" in text
    assert "'y': tensor([4000], [1], torch.float32, False, device)" in text
    assert "'TYPE': tl.float32" in text
    for option, end in (((), "bytes of cubin"), (("--interpret",), "ran in the interpreter")):
        done = subprocess.run(
            [sys.executable, str(path), *option], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.stdout.strip().endswith(end), done.stderr


def test_what_cannot_be_reproduced():
    with pytest.raises(InputError, match="no launch of a kernel is known"):
        reproducer([a_compiled()], "out.py")
    launch = {"source": "", "arguments": {"pair": {"unknown": "a tuple"}}}
    with pytest.raises(InputError, match="takes a tuple as pair, which is not reproduced"):
        reproducer([a_compiled(launch=launch)], "out.py")

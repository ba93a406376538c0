"""Gluon kernels, whose source has the layouts, and arguments that Triton does not specialize."""

from importlib.util import find_spec

import pytest

import traceview
from traceview.base.errors import InputError

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
)
GLUON = """import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def copy(x_ptr, y_ptr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + at, gl.load(x_ptr + at))


x = torch.empty(4096, device="cuda")
copy[(4,)](x, x, 1024, gl.BlockedLayout([1], [32], [4], [0]))
"""
DESCRIBED = """from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma


@gluon.jit
def copy(x_desc, y_ptr, barrier):
    shared = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_type.shape, x_desc.layout)
    tma.async_copy_global_to_shared(x_desc, [0, 0], barrier, shared)
"""
FIXED = """import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n"])
def double(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at) * 2)


double[(4,)](torch.empty(4096, device="cuda"), 1024, BLOCK=1024)
"""


def finding_of(path, text):
    path.write_text(text)
    (kernel,) = traceview.inspect_ptx(path).kernels
    return next(each for each in kernel.findings if "Global" in each.message)


def test_the_width_of_a_gluon_kernel_is_that_of_its_layout(tmp_path):
    found = finding_of(tmp_path / "script.py", GLUON)
    assert "because the layout gives each thread 1 adjacent element of a tile" in found.message
    assert found.action == "Give each thread 4 adjacent elements in the layout (size_per_thread)"


def test_a_long_layout_is_shown_as_cut():
    from traceview.kernels.headless.worker.event_log import plain

    layouts = tuple(["[1, 4]"] * 40)
    assert plain(layouts) == f"{layouts!r}"[:159] + "…"
    assert plain(layouts[:9]) == repr(layouts[:9])


def test_descriptors_of_gluon_cannot_be_guessed(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(DESCRIBED)
    with pytest.raises(InputError) as caught:
        traceview.inspect_ptx(path)
    assert caught.value.what == (
        "copy cannot be guessed: x_desc is a tensor descriptor, whose block shape is set at the "
        "launch"
    )
    assert caught.value.remedy == (
        "pass a script that launches the kernel, or declare each as tensordesc<fp16[128, 64]> in "
        "--signature"
    )


def test_padding_alone_does_not_help_what_is_not_specialized(tmp_path):
    found = finding_of(tmp_path / "script.py", FIXED)
    assert "because n is in do_not_specialize (it was 1024)" in found.message
    assert found.action == "Take n out of do_not_specialize"
    found = finding_of(tmp_path / "script.py", FIXED.replace("1024, BLOCK", "1000, BLOCK"))
    assert "n is not known to be divisible by 16 (it was 1000)" in found.message
    assert found.action == "Pad n to a multiple of 16, and take n out of do_not_specialize"

"""Scripts with a Triton kernel, and the error of one that is no target."""

import importlib.metadata
import importlib.util

import pytest

from traceview.base.errors import InputError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.python_targets import compile_python

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="compiles with Triton"
)

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="runs scripts that use PyTorch"
)

HEADER = "import triton\nimport triton.language as tl\n\n"

KERNEL = """\
@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)

"""

TENSOR = 'import torch\nx = torch.empty(4096, device="cuda")\n'

LAUNCH = TENSOR + "fill[(4,)](x, 4096, BLOCK=1024)\n"


def error_of(target: str, kind=InputError, **options) -> str:
    with pytest.raises(kind) as caught:
        compile_python(target, CompileOptions(**options))
    assert "\n" not in str(caught.value)
    return str(caught.value)

"""Large tensors take no memory, and what PyTorch would compute of them is left out."""

import importlib.util
import re

import pytest

from traceview.base.errors import InputError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.headless.worker.forked_task import cores
from traceview.kernels.inspect.python_targets import compile_python
from traceview.kernels.ptx.cubin import resources

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"needs {name}")
    for name in ("torch", "triton")
]

COPY = """\
import torch
import triton
import triton.language as tl

@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

"""


def test_a_script_of_64_gigabytes_and_its_reference(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        COPY + 'x = torch.randn(131072, 131072, device="cuda")\n'
        "y = torch.empty_like(x)\n"
        "copy[(x.numel() // 1024,)](x, y, x.numel(), BLOCK=1024)\n"
        "torch.testing.assert_close(y, torch.nn.functional.gelu(x @ x))\n"
        "assert (x + y)[:2, ::2].sum().item() == 0\n"
        'layer = torch.nn.Linear(16384, 16384, device="cuda", dtype=torch.float16)\n'
        'layer(torch.randn(8192, 16384, device="cuda").half()).sum().backward()\n'
        "assert layer.weight.grad.shape == (16384, 16384)\n"
        "open('/proc/self/status').read()\n"
        f"open({str(tmp_path / 'memory')!r}, 'w').write(open('/proc/self/status').read())\n"
    )
    notes = []
    (kernel,) = compile_python(str(script), note=notes.append)
    assert kernel.launches == 1
    assert "large operations of PyTorch were not computed" in notes[0]
    peak = re.search(r"VmHWM:\s+(\d+) kB", (tmp_path / "memory").read_text())
    assert int(peak[1]) < 4_000_000


def test_small_values_are_computed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        COPY + 'x = torch.arange(4096, device="cuda")\n'
        "assert (x @ x).item() == 22898104320 and x.float().mean().item() == 2047.5\n"
        "copy[(4,)](x, torch.empty_like(x), 4096, BLOCK=1024)\n"
    )
    notes = []
    compile_python(str(script), note=notes.append)
    assert notes == ["script.py: 1 kernel compiled as launched"]


def test_a_kernel_that_is_wrapped_for_graphs_is_launched(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        COPY + 'x = torch.zeros(4096, device="cuda")\n'
        "torch.library.wrap_triton(copy)[(4,)](x, torch.empty_like(x), 4096, BLOCK=1024)\n"
    )
    (kernel,) = compile_python(str(script))
    assert (kernel.launches, kernel.grid) == (1, (4, 1, 1))


def test_a_grid_sized_by_the_registers_of_the_compiled_kernel(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        COPY + 'x = torch.zeros(4096, device="cuda")\n'
        "y = torch.empty_like(x)\n"
        "kernel = copy.warmup(x, y, 4096, BLOCK=1024, grid=(1,))\n"
        "kernel._init_handles()\n"
        "assert kernel.n_spills == 0\n"
        "copy[(65536 // (kernel.n_regs * 128),)](x, y, 4096, BLOCK=1024)\n"
    )
    (kernel,) = compile_python(str(script))
    registers = resources(kernel.cubin)["copy"].registers
    assert 8 <= registers < 64
    assert kernel.grid == (65536 // (registers * 128), 1, 1)


def test_a_script_that_fails_before_its_launch_is_guessed_only_on_demand(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(COPY + "raise ValueError('no data')\n")
    with pytest.raises(InputError, match=r"raised ValueError at line 10: no data; .*--guess"):
        compile_python(str(script))
    (kernel,) = compile_python(str(script), CompileOptions(guess=True))
    assert kernel.how == "guessed"


TUNED = COPY.replace(
    "@triton.jit",
    "@triton.autotune([triton.Config({'BLOCK': 32 << n}) for n in range(6)], key=[])\n@triton.jit",
)


def test_an_autotuner_is_sampled(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        TUNED + 'x = torch.zeros(4096, device="cuda")\n'
        "copy[lambda meta: (4096 // meta['BLOCK'],)](x, torch.empty_like(x), 4096)\n"
    )
    notes = []
    blocks = [_block(k) for k in compile_python(str(script), note=notes.append)]
    assert sorted(blocks) == [32, 128, 256, 1024]
    assert notes[0] == (
        "copy: 4 of 6 autotuner configurations are compiled; --all-configs compiles all"
    )
    every = compile_python(str(script), CompileOptions(all_configs=True))
    assert sorted(map(_block, every)) == [32 << n for n in range(6)]


@pytest.mark.skipif(cores() < 2, reason="needs two cores")
def test_two_configurations_of_an_autotuner_are_compiled_at_the_same_time(tmp_path):
    """The second of each pair begins in a fork."""
    forks, script = tmp_path / "forks", tmp_path / "script.py"
    script.write_text(
        f"import os\nos.register_at_fork(before=lambda: open({str(forks)!r}, 'a').write('.'))\n"
        + TUNED.replace("range(6)", "range(4)")
        + 'x = torch.zeros(4096, device="cuda")\n'
        "copy[lambda meta: (4096 // meta['BLOCK'],)](x, torch.empty_like(x), 4096)\n"
    )
    assert len(compile_python(str(script))) == 4
    assert forks.read_text() == ".."


def _block(kernel):
    return next(a.value for a in kernel.arguments if a.name == "BLOCK")


def test_dynamo_is_not_imported_and_works_where_the_script_uses_it(tmp_path):
    """Importing it takes as long as importing PyTorch."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n" + COPY + 'x = torch.ones(4096, device="cuda") + 1\n'
        "copy[(4,)](x, torch.empty_like(x), 4096, BLOCK=1024)\n"
        'assert "torch._dynamo" not in sys.modules\n'
        "import torch._dynamo\n"
        'twice = torch._dynamo.optimize("eager")(lambda x: x * 2)\n'
        "assert twice(x).sum().item() == 4 * 4096\n"
        "assert twice(torch.zeros(1 << 25)).shape == (1 << 25,)\n"
    )
    notes = []
    compile_python(str(script), note=notes.append)
    assert "large operations of PyTorch were not computed" in notes[0]
    assert notes[-1].endswith("compiled as launched")

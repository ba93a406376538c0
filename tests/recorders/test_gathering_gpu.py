"""On a real GPU: every Triton kernel that ran is in the trace with its code, from caches too."""

import os
import sqlite3
import sys
from contextlib import closing

import pytest

import traceview as package
from tests.recorders.fake_nsys import traceview
from traceview.traces.facts.code import gathered_code
from traceview.traces.trace.load import load

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("elftools")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
]

TRITON = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 256}, num_warps=2),
                  triton.Config({"BLOCK": 1024}, num_warps=4)], key=["n"])
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

x = torch.randn(1 << 20, device="cuda")
y = torch.empty_like(x)
for n in (1 << 20, (1 << 20) - 1):
    for _ in range(5):
        scale[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
    tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
torch.cuda.synchronize()
"""
INDUCTOR = """
import torch

@torch.compile
def f(x, w):
    return torch.nn.functional.gelu(x @ w + 1).softmax(-1)

if __name__ == "__main__":
    x = torch.randn(512, 1024, device="cuda", requires_grad=True)
    w = torch.randn(1024, 1024, device="cuda", requires_grad=True)
    for _ in range(3):
        f(x, w).sum().backward()
    torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def record(nsys, tmp_path_factory):
    """Record a program twice: with fresh caches, then with those of the first run."""
    folder = tmp_path_factory.mktemp("gathering")
    environment = {**os.environ, "TRACEVIEW_NSYS": str(nsys)}
    environment |= {
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    done = {}

    def recorded(name, program):
        if name not in done:
            (folder / f"{name}.py").write_text(program)
            for turn in ("fresh", "warm"):
                out = folder / f"{name}-{turn}.sqlite"
                words = ("record", "--backtrace", "none", "-o", out.name, f"{name}.py")
                ran = traceview(*words, cwd=folder, environment=environment)
                assert ran.returncode == 0, ran.stderr
                print(ran.stderr[-2000:], file=sys.stderr)
                done.setdefault(name, {})[turn] = out
        return done[name]

    return recorded


def triton_names(path):
    """The kernels that Triton or Inductor named, by what they were given."""
    with closing(sqlite3.connect(path)) as connection:
        query = """SELECT DISTINCT s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k
                   JOIN StringIds s ON s.id = k.demangledName"""
        names = {name for (name,) in connection.execute(query)}
    return {name for name in names if name in ("tuned", "scale") or name.startswith("triton_")}


@pytest.mark.parametrize("turn", ["fresh", "warm"])
@pytest.mark.parametrize(("name", "program"), [("tri", TRITON), ("ind", INDUCTOR)])
def test_every_triton_kernel_has_its_code(record, name, program, turn):
    path = record(name, program)[turn]
    trace = load(path)
    names = triton_names(path)
    assert names
    assert names <= set(trace.kernel_code.cells("name"))
    code = gathered_code(trace)
    assert code.unfit == {}
    assert {launched.compiled.name for launched in code.launched} == names
    assert all(launched.compiled.ptx and launched.compiled.cubin for launched in code.launched)
    assert all(launched.compiled.arguments for launched in code.launched)


@pytest.mark.parametrize("turn", ["fresh", "warm"])
@pytest.mark.parametrize(("name", "program"), [("tri", TRITON), ("ind", INDUCTOR)])
def test_the_trace_tells_the_widths(record, name, program, turn):
    path = record(name, program)[turn]
    report = package.inspect_ptx(path)
    assert {kernel.name for kernel in report.kernels} == triton_names(path)
    for kernel in report.kernels:
        assert any(access.width_bits for access in kernel.accesses)
        assert kernel.compiled.launches > 0
        assert kernel.waves


def test_variants_of_a_kernel_keep_their_launches_apart(record):
    """1 << 20 is divisible by 16 and one less is not: two variants, five launches each."""
    code = gathered_code(load(record("tri", TRITON)["fresh"]))
    scales = [each for each in code.launched if each.compiled.name == "scale"]
    known = {
        {a.name: a.divisible_by_16 for a in each.compiled.arguments}["n"]: each.launches
        for each in scales
    }
    registers_differ = all(each.alike == 0 for each in scales)
    assert known == ({True: 5, False: 5} if registers_differ else {True: 10, False: 10})

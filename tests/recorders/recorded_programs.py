"""Programs that compile Triton kernels without a GPU, and the folder of what they gathered."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.headless.forked_python import run_script
from traceview.traces.recorders import options
from traceview.traces.recorders.options import RecordOptions

KERNEL = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr, TYPE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, (value * factor).to(TYPE), mask=at < n)

TYPES = {"x": "*fp32", "y": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr",
         "TYPE": "constexpr"}

def source(divisible=(0, 1, 2)):
    known = {(at,): [["tt.divisibility", 16]] for at in divisible}
    return ASTSource(scale, TYPES, {(4,): 1024, (5,): tl.float16}, known)

def compiled(warps=4, divisible=(0, 1, 2)):
    return triton.compile(source(divisible), target=GPUTarget("cuda", 90, 32),
                          options={"num_warps": warps})
"""
LINE_OF_DEF = (
    KERNEL.splitlines().index(
        "def scale(x, y, n, factor, BLOCK: tl.constexpr, TYPE: tl.constexpr):"
    )
    + 1
)


def environment(folder: Path, **changes: str) -> dict[str, str]:
    """As `traceview record` sets it, with caches of Triton's and Inductor's beside the folder."""
    added = options.environment(RecordOptions(sync_sites=False, annotate="off"), folder)
    caches = {
        "TRITON_CACHE_DIR": str(folder.parent / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder.parent / "inductor"),
    }
    return {**os.environ, **caches, **added, **changes}


def run(program: str, folder: Path, *options: str, **changes: str):
    """Run a program from a file; its output and status as subprocess gives them."""
    script = folder.parent / "program.py"
    script.write_text(KERNEL + program)
    command, told = [sys.executable, *options, str(script)], environment(folder, **changes)
    if not options:
        return run_script(command, told, folder=folder.parent)
    return subprocess.run(
        command, env=told, cwd=folder.parent, capture_output=True, text=True, timeout=120
    )


def gathered(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def notes(folder: Path) -> str:
    path = folder / "notes.txt"
    return path.read_text() if path.exists() else ""

"""PTX of kernels that a GPU ran against that of kernels that nothing ran, byte for byte.

    python tests/gpu/launched_ptx.py [SCRIPT.py]

Runs the script twice, for the same architecture: once as it is, on the GPU, with an empty cache
for Triton to fill, and once as `traceview ptx` does, in a process that sees no GPU. Whatever Triton
compiled, autotuned configurations included, must be the same. Needs PyTorch, Triton and a GPU.
"""

from __future__ import annotations

import ctypes
import difflib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "ptx" / "kernels" / "tutorials.py"
SHOWN_LINES = 20
ABOUT = (
    "import torch, triton; "
    "print('sm_%d%d' % torch.cuda.get_device_capability(), torch.cuda.get_device_name(), "
    "'torch', torch.__version__, 'triton', triton.__version__)"
)

Codes = Mapping[str, Counter[bytes]]


@dataclass(frozen=True)
class Row:
    """A kernel: how many of its variants are the same, and those that only one side has."""

    kernel: str
    same: int
    launched_only: tuple[bytes, ...]
    unlaunched_only: tuple[bytes, ...]

    @property
    def agrees(self) -> bool:
        return not (self.launched_only or self.unlaunched_only)

    def differences(self) -> Iterable[str]:
        """The lines in which the variants that one side has differ from those of the other."""
        sides = (self.launched_only, self.unlaunched_only)
        texts = ([t.decode(errors="replace").splitlines() for t in side] for side in sides)
        left, right = ([line for text in sorted(side) for line in text] for side in texts)
        return difflib.unified_diff(left, right, "launched", "unlaunched", lineterm="", n=0)


def rows(launched: Codes, unlaunched: Codes) -> list[Row]:
    """All kernels of either side, in the order of their names."""
    names = sorted(launched.keys() | unlaunched.keys())
    return [
        _row(name, launched.get(name, Counter()), unlaunched.get(name, Counter())) for name in names
    ]


def _row(name: str, launched: Counter[bytes], unlaunched: Counter[bytes]) -> Row:
    same = (launched & unlaunched).total()
    only = ((launched - unlaunched).elements(), (unlaunched - launched).elements())
    return Row(name, same, *(tuple(sorted(side)) for side in only))


def has_gpu() -> bool:
    """Whether the driver finds a GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    found = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    return found and count.value > 0


def on_the_gpu(script: Path, kind: str, folder: Path) -> Codes:
    """What a run on the GPU leaves in Triton's cache: texts or cubins by the kernel's name."""
    codes: dict[str, Counter[bytes]] = {}
    if not any(folder.iterdir()):
        environment = os.environ | {"TRITON_CACHE_DIR": str(folder)}
        subprocess.run([sys.executable, script], env=environment, check=True, stdout=sys.stderr)
    for path in sorted(folder.glob(f"*/*.{kind}")):
        codes.setdefault(path.stem, Counter())[path.read_bytes()] += 1
    return codes


def main(script: Path) -> int:
    """Compare and print; 1 if anything differs."""
    sys.path.insert(0, str(ROOT))
    from traceview.kernels.headless.compile_options import CompileOptions
    from traceview.kernels.inspect.python_targets import compile_python

    if not has_gpu():
        print("no NVIDIA GPU here: there is nothing to compare with", file=sys.stderr)
        return 2
    about = subprocess.check_output([sys.executable, "-c", ABOUT], text=True).strip()
    print(about)
    print("set:", {n: v for n, v in os.environ.items() if n.startswith("TRITON_")} or "nothing")
    compiled = compile_python(str(script.absolute()), CompileOptions(arch=about.split()[0]))
    ptx: dict[str, Counter[bytes]] = {}
    cubins: dict[str, Counter[bytes]] = {}
    for each in compiled:
        ptx.setdefault(each.name, Counter())[(each.ptx or "").encode()] += 1
        cubins.setdefault(each.name, Counter())[each.cubin or b""] += 1
    with tempfile.TemporaryDirectory(prefix="launched-") as folder:
        found = rows(on_the_gpu(script.absolute(), "ptx", Path(folder)), ptx)
        found_cubins = rows(on_the_gpu(script.absolute(), "cubin", Path(folder)), cubins)
    return _printed(found, found_cubins)


def _printed(ptx: list[Row], cubins: list[Row]) -> int:
    for row, cubin in zip(ptx, cubins, strict=True):
        verdict = "same" if row.agrees else "DIFFERS"
        print(f"{row.kernel:24} {row.same:2} × PTX {verdict}, {cubin.same:2} × cubin same")
        for line in list(row.differences())[:SHOWN_LINES]:
            print("   ", line)
    variants = sum(row.same for row in ptx)
    others = sum(len(row.launched_only) + len(row.unlaunched_only) for row in ptx)
    print(f"{len(ptx)} kernels: {variants} variants the same byte for byte, {others} not")
    return 0 if ptx and all(row.agrees for row in ptx) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else SCRIPT))

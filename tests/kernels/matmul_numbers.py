"""Run as a program: matrix products of odd shapes against float64, as JSON.

python -m tests.kernels.matmul_numbers interpreter|gpu
"""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = str(int(sys.argv[1] == "interpreter"))

import torch
from triton.runtime.errors import OutOfResources

from kernels import low_precision_matmul, matmul, matmul_tf32

DEVICE = "cpu" if sys.argv[1] == "interpreter" else "cuda"
# In the interpreter tests.kernels.numbers has one element, and tiles that are full.
SMALL = [(5, 7, 3), (48, 16, 80), (70, 130, 33), (130, 65, 97)]
FULL = [(1, 1, 1), (128, 256, 64)]
LARGE = [(1031, 2053, 517), (1024, 4096, 512), (2048, 1040, 4112), (257, 264, 4096)]
SHAPES = SMALL if DEVICE == "cpu" else [*SMALL, *FULL, *LARGE]
TYPES = (torch.float16, torch.bfloat16, torch.float32)


def random(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made).to(dtype).to(DEVICE)


def error(given: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((given.double() - wanted).abs().max() / wanted.abs().max())


def pairs():
    """Every shape and type; the versions that take them."""
    for m, n, k in SHAPES:
        for dtype in TYPES:
            a, b = random(m, k, dtype=dtype, seed=1), random(k, n, dtype=dtype, seed=2)
            matmul.check(a, b)
            for version in matmul.OPERATION.versions:
                # Its tuning would time four tiles for each shape.
                if DEVICE == "cuda" and version.name == "triton-autotuned":
                    continue
                if version.supports is None or version.supports(a, b):
                    yield version.name, (m, n, k), dtype, version.run(a, b), a.double() @ b.double()


def tiles():
    """Every tile, where it does not fit the matrix, and 16-bit numbers for those made for them."""
    a, b = (random(144, 144, dtype=torch.float16, seed=seed) for seed in (3, 4))
    wanted = a.double() @ b.double()
    for tile in (*matmul.TILES, matmul.SMALL_TILE, matmul.ODD_TILE, matmul.FLOAT32_TILE):
        for run in (matmul.grouped, matmul.persistent):
            try:
                found = run(a, b, chosen=tile)
            except OutOfResources:
                # The persistent version keeps more of a tile in shared memory than there is.
                continue
            yield run.__name__, str(tile), torch.float16, found, wanted


def precisions():
    """How fp32 is multiplied, by argument and as torch is set."""
    a, b = (random(96, 96, dtype=torch.float32, seed=seed) for seed in (5, 6))
    wanted = a.double() @ b.double()
    for precision in ("tf32", "tf32x3", "ieee"):
        given = matmul.grouped(a, b, precision)
        yield "precision", precision, torch.float32, given, wanted
    assert matmul._precision(None) == "tf32x3"
    torch.set_float32_matmul_precision("high")
    assert matmul._precision(None) == "tf32"
    matmul_tf32.exact(a, b)
    assert torch.get_float32_matmul_precision() == "high", "left as it was"
    torch.set_float32_matmul_precision("highest")


def eight_bits():
    """Scales, shapes that are not square, and sums of int8 that fp16 could not hold."""
    for m, n, k in ((33, 65, 47), (64, 96, 288), (1, 5, 300)):
        for dtype in (torch.float8_e4m3fn, torch.int8):
            spread = 100 if dtype == torch.int8 else 1
            a = (random(m, k, dtype=torch.float32, seed=7) * spread).clamp(-127, 127)
            b = (random(n, k, dtype=torch.float32, seed=8) * spread).clamp(-127, 127)
            a, b = a.to(dtype), b.to(dtype)
            scale = torch.tensor(0.37, device=DEVICE)
            low_precision_matmul.check(a, b, scale)
            wanted = a.double() @ b.double().T * scale.double()
            for run in (low_precision_matmul.precise, low_precision_matmul.fast):
                yield run.__name__, (m, n, k), dtype, run(a, b, scale), wanted
    # As many products as are taken, each as large as there is: to 16,384 of the end of int32.
    a = torch.full((1, low_precision_matmul.MOST_PRODUCTS), -128, dtype=torch.int8, device=DEVICE)
    one = torch.ones((), device=DEVICE)
    low_precision_matmul.check(a, a, one)
    found = low_precision_matmul.precise(a, a, one)
    yield "precise", tuple(a.shape), torch.int8, found, a.double() @ a.double().T


def main() -> None:
    for rows in (pairs(), tiles(), precisions(), eight_bits()):
        for name, shape, dtype, given, wanted in rows:
            assert given.shape == wanted.shape
            name_of_type = str(dtype).removeprefix("torch.")
            print(json.dumps([name, str(shape), name_of_type, error(given, wanted)]), flush=True)


if __name__ == "__main__":
    main()

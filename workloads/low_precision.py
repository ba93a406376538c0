"""Run one GEMM in five precisions: float32, TF32, float16, bfloat16 and float8.

    python workloads/low_precision.py

Tensor cores multiply numbers of few bits, and faster the fewer they are: TF32 keeps a 10-bit
mantissa of each float32, bfloat16 7 bits in half the bytes, float8 3 bits in a quarter. Sums stay
in float32 throughout. The printed error is against float64, relative to the typical magnitude.

Expect: `kernel-share` finds TF32 several times faster than float32, the 16-bit types faster than TF32, and float8 faster than these.

The ranges: warm_up, and step_N around one range per precision, which declares its FLOP. Precisions
that the device does not support are skipped with a line each.
"""  # noqa: E501 (the finding is one line, for a program to read)

import json
from collections.abc import Callable

import torch
from arguments import Arguments, count
from ranges import annotate
from torch import Tensor

SEED = 20
KINDS = {"float32": "fp32", "tf32": "tf32", "float16": "fp16", "bfloat16": "bf16", "float8": "fp8"}


def product(a: Tensor, b: Tensor, precision: str) -> Callable[[], Tensor]:
    """A function that runs the GEMM; the inputs are converted beforehand."""
    if precision == "float8":
        one = torch.ones((), device=a.device)
        left = a.to(torch.float8_e4m3fn)
        # The second matrix has to be column-major.
        right = b.to(torch.float8_e4m3fn).t().contiguous().t()
        return lambda: torch._scaled_mm(
            left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )
    if precision in ("float32", "tf32"):

        def multiply() -> Tensor:
            torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
            return a @ b

        return multiply
    left, right = (factor.to(getattr(torch, precision)) for factor in (a, b))
    return lambda: left @ right


def precisions(device: str) -> list[str]:
    """The precisions that this device supports; prints why it skips the others."""
    if device == "cpu":
        print("tf32, float8: products of these need a GPU's tensor cores")
        return ["float32", "float16", "bfloat16"]
    capability = torch.cuda.get_device_capability()
    left_out = {"tf32": (8, 0), "bfloat16": (8, 0), "float8": (8, 9)}
    for name, needed in left_out.items():
        if capability < needed:
            print(f"{name}: needs compute capability {needed[0]}.{needed[1]}")
    return [name for name in KINDS if capability >= left_out.get(name, (0, 0))]


def main() -> None:
    parser = Arguments(__doc__, steps=5)
    parser.add_argument(
        "--size", type=count, help="side, a multiple of 16; default: 4096 on a GPU, else 64"
    )
    given = parser.given()
    if given.size and given.size % 16:
        parser.error(f"argument --size: float8 needs 16 to divide it, and {given.size} is not so")
    device = given.device
    size = given.size or (4096 if device == "cuda" else 64)
    torch.manual_seed(SEED)
    a, b = torch.randn(2, size, size, device=device)
    ways = {name: product(a, b, name) for name in precisions(device)}
    with annotate("warm_up"):
        exact = a[:64].double() @ b.double()
        for name, multiply in ways.items():
            error = (multiply()[:64].double() - exact).abs().max() / size**0.5
            print(f"{name}: error {float(error):.1e}")
    for step in range(given.steps):
        with annotate(f"step_{step}"):
            for name, multiply in ways.items():
                work = json.dumps({"flop": 2 * size**3, "kind": KINDS[name]})
                with annotate(f"{name} {work}"):
                    multiply()
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()

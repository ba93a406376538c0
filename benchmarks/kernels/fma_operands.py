"""Cost of an FFMA by where its operands come from: why divergence's branch_free is no faster.

    python -m benchmarks.kernels.fma_operands         # on a machine with a GPU: times by events
    ncu --metrics sm__cycles_active.avg,smsp__inst_executed.avg \
        python -m benchmarks.kernels.fma_operands --once

Kernels of 256 FFMA per thread that differ only in the operands: three registers (one of them
uniform over the lanes or not), two registers and an immediate, one register twice; in one
dependency chain or two interleaved ones. kernels/divergence.py has ncu's figures for an H200.
"""

import argparse
from collections.abc import Callable

import torch

from traceview.base.units import duration
from traceview.trials.bench import benchmark

N = 1 << 24
THREADS = 256
# The factors for even and odd elements, which the compiler cannot know.
BY_LANE = "float e = i % 2 == 0 ? a : -a, f = 1.0f + e, g = -e;"
KERNEL = r"""
extern "C" __global__ void {name}(const float* x, float* y, float a, float b) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i], w = v + 1.0f;
    {by_lane}
    #pragma unroll
    for (int s = 0; s < {steps}; s++) {{ {chains} }}
    y[i] = v{added};
}}
"""
ONE = ("v = fmaf({factor}, v, {summand});", 256, "")
TWO = ("v = fmaf({factor}, v, {summand}); w = fmaf({factor}, w, {summand});", 128, " + w")
VERSIONS = {
    "three_registers": (ONE, "f", "g"),
    "one_of_them_twice": (ONE, "f", "f"),
    "itself_twice": (ONE, "f", "v"),
    "summand_in_instruction": (ONE, "f", "-0.0009765625f"),
    "factor_in_instruction": (ONE, "1.0009765625f", "g"),
    "summand_uniform": (ONE, "f", "b"),
    "factor_uniform": (ONE, "b", "g"),
    "three_registers_two_chains": (TWO, "f", "g"),
    "instruction_two_chains": (TWO, "f", "-0.0009765625f"),
}


def launcher(name: str, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    """One version, compiled."""
    (chains, steps, added), factor, summand = VERSIONS[name]
    source = KERNEL.format(
        name=name,
        by_lane=BY_LANE,
        chains=chains.format(factor=factor, summand=summand),
        steps=steps,
        added=added,
    )
    kernel = torch.cuda._compile_kernel(source, name)
    numbers = (2.0**-10, -(2.0**-10))
    return lambda: kernel((N // THREADS, 1, 1), (THREADS, 1, 1), (x, y, *numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description="Time FFMA by their operands.")
    parser.add_argument("--once", action="store_true", help="launch each once, for ncu")
    once = parser.parse_args().once
    x = torch.randn(N, device="cuda")
    y = torch.empty_like(x)
    for name in VERSIONS:
        launch = launcher(name, x, y)
        if once:
            launch()
            continue
        print(f"{name:27s} {duration(benchmark(launch).median_ns)}")
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

"""A CuPy program that waits for the GPU in four ways; recorded with `traceview record`."""

import cupy as cp
import cupyx.profiler


def loop(steps: int) -> float:
    x = cp.random.default_rng(0).standard_normal((4096, 4096), dtype=cp.float32)
    total = 0.0
    for step in range(steps):
        with cupyx.profiler.time_range(f"step_{step}"):
            for _ in range(10):
                x = cp.tanh(x @ x / 4096)
            total += x.sum().item()
            row = x[0].get()
            total += float(row[0])
            if x.max() > 2:
                total += 1
            cp.cuda.Stream.null.synchronize()
    return total


if __name__ == "__main__":
    print(loop(6))

"""Run as a program: compare every version of operations with their float64 references.

    python -m tests.kernels.numbers interpreter|gpu NAME...

Writes a line of JSON for each version, data type and size. It is a process of its own, since
Triton decides when it is imported whether it interprets.
"""

import json
import os
import sys
from collections.abc import Iterator

from traceview.bench import Operation, Version
from traceview.bench.correctness import compare, copies, expected, is_changed


def main(where: str, names: list[str]) -> None:
    os.environ["TRITON_INTERPRET"] = str(int(where == "interpreter"))
    import torch

    import kernels

    torch.set_num_threads(1)
    device = "cuda" if where == "gpu" else "cpu"
    for name in names:
        for row in rows(kernels.operation(name), device):
            print(json.dumps(row), flush=True)


def rows(operation: Operation, device: str) -> Iterator[dict[str, object]]:
    import torch

    sizes = (*operation.small_sizes, *(operation.sizes[:1] if device == "cuda" else ()))
    for dtype in operation.dtypes:
        for size in sizes:
            inputs = operation.inputs(size, getattr(torch, dtype), device)
            operation.check(*inputs)
            wanted, before = expected(operation, inputs), copies(inputs)
            for version in operation.versions:
                row = {
                    "name": operation.name,
                    "version": version.name,
                    "dtype": dtype,
                    "size": size,
                }
                if not runs(version, device, inputs):
                    yield {**row, "skipped": True}
                    continue
                found = compare(version.run(*inputs), wanted, operation.tolerances[dtype])
                changed = is_changed(inputs, before)
                yield {**row, "error": found.error, "wrong": found.wrong, "changed": changed}


def runs(version: Version, device: str, inputs: tuple[object, ...]) -> bool:
    # torch.compile needs a C++ compiler on a CPU, takes seconds there, and is not ours to test.
    compiled_or_cuda = version.needs == "cuda" or version.name == "torch.compile"
    if device == "cpu" and compiled_or_cuda:
        return False
    return version.supports is None or version.supports(*inputs)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

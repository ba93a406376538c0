"""Run as a program: compare every version of operations with their float64 references.

    python -m tests.kernels.numbers interpreter|gpu NAME...

Writes a line of JSON for each version, data type and size. It is a process of its own, since
Triton decides when it is imported whether it interprets.
"""

import json
import os
import sys
from collections.abc import Iterator
from itertools import chain

from traceview.trials.bench import Operation, Version
from traceview.trials.bench.case import Reference, compare, map_tensors, reference_outputs

SHAPES = {
    # Nine tiles of rows are a second group of tiles; and nothing is square.
    "linear_relu": [[(1100, 37), (33, 37), (33,)], [(33, 70), (150, 70), (150,)]],
    "matmul": [[(1100, 37), (37, 33)], [(1100, 48), (48, 16)], [(16, 1100), (1100, 48)]],
    # More than all blocks together hold at once, so that each goes on to a second part.
    "sum": [[((1 << 22) + 5000,)]],
    "row_sum": [[(3, 20_000)]],
    "column_sum": [[(9000, 3)], [(300, 130)]],
    "transpose": [[(2, 300)], [(300, 2)]],
}
"""Of the inputs, where the sizes alone leave a part of a kernel unseen."""
FEW = 16
"""In the interpreter, as many blocks at once, and parts of a column: so fewer are too many."""
SHAPES_FOR_FEW = {"sum": [[((1 << 16) + 5000,)]], "column_sum": [[(1100, 3)], [(300, 130)]]}


def main(where: str, names: list[str]) -> None:
    os.environ["TRITON_INTERPRET"] = str(int(where == "interpreter"))
    import torch

    import kernels
    from kernels import column_sum
    from kernels import sum as sum_of_all

    torch.set_num_threads(1)
    device = "cuda" if where == "gpu" else "cpu"
    if device == "cpu":
        sum_of_all.PROGRAMS = column_sum.PARTS = FEW
        SHAPES.update(SHAPES_FOR_FEW)
    for name in names:
        for row in rows(kernels.operation(name), device):
            print(json.dumps(row), flush=True)


def rows(operation: Operation, device: str) -> Iterator[dict[str, object]]:
    import torch

    for dtype in operation.dtypes:
        of = getattr(torch, dtype)
        for case, inputs in chain(by_size(operation, of, device), by_shape(operation, of, device)):
            operation.check(*inputs)
            expected = reference_outputs(operation, inputs)
            known = Reference(0, inputs, expected, map_tensors(inputs, torch.clone))
            for version in operation.versions:
                row = {
                    "name": operation.name,
                    "version": version.name,
                    "dtype": dtype,
                    **case,
                }
                if not runs(version, device, inputs):
                    yield {**row, "skipped": True}
                    continue
                check = compare(version.run(*inputs), expected, operation.tolerances[dtype])
                is_changed = known.is_modified()
                yield {**row, "error": check.error, "wrong": check.wrong, "changed": is_changed}


def by_size(operation: Operation, dtype: object, device: str) -> Iterator[tuple[dict, tuple]]:
    sizes = (*operation.small_sizes, *(operation.sizes[:1] if device == "cuda" else ()))
    if device == "cpu" and str(dtype).removeprefix("torch.") in operation.dtypes[1:-1]:
        # What a type changes does not hang on the size: the largest has the first and the last.
        sizes = sizes[:-1]
    for size in sizes:
        yield {"size": size}, operation.inputs(size, dtype, device)


def by_shape(operation: Operation, dtype: object, device: str) -> Iterator[tuple[dict, tuple]]:
    """Numbers of the first of its types, mostly positive, so that sums do not cancel out."""
    import torch

    if str(dtype) != f"torch.{operation.dtypes[0]}":
        return
    made = torch.Generator().manual_seed(0)
    for shapes in SHAPES.get(operation.name, ()):
        given = (torch.rand(shape, generator=made) - 0.25 for shape in shapes)
        yield {"shapes": shapes}, tuple(each.to(dtype).to(device) for each in given)


def runs(version: Version, device: str, inputs: tuple[object, ...]) -> bool:
    # torch.compile needs a C++ compiler on a CPU, takes seconds there, and is not ours to test.
    compiled_or_cuda = version.needs == "cuda" or version.name == "torch.compile"
    if device == "cpu" and compiled_or_cuda:
        return False
    return version.supports is None or version.supports(*inputs)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""Compute one operation of kernels/ in every way that it has there, each under its own range.

    python workloads/versions.py add
    python workloads/versions.py transpose --size 4096 --dtype float16

Each version runs once for nothing, which compiles it, and then once a step. Its range declares the
bytes and FLOP that the operation needs at least, so that a report can say how near each comes.
Versions that this machine cannot run are told in a line each.

Expect: `kernel-share` finds each version under a range of its own, and `roofline` how near each comes to the peak.

The ranges: warm_up around every version, and step_N around every version.
"""  # noqa: E501 (the finding is one line, for a program to read)

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from arguments import Arguments, count

# The operations lie beside this folder; nobody installs them.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kernels
from traceview.bench.operation import Operation, Version


def annotation() -> Callable[[str], AbstractContextManager[object]]:
    """torch's NVTX range on a GPU; nothing elsewhere."""
    if torch.version.cuda:
        # To torch the text is a format, and ours holds braces.
        return lambda text: torch.cuda.nvtx.range("{}", text)
    return lambda _: nullcontext()


annotate = annotation()


def able(operation: Operation, inputs: tuple[object, ...], device: str) -> Iterator[Version]:
    """The versions that can take these inputs here; of the others, why not."""
    for version in operation.versions:
        if device == "cpu" and version.needs != "cpu":
            print(f"{operation.name} {version.name}: needs a GPU")
        elif device == "cpu" and version.name == "torch.compile":
            print(f"{operation.name} {version.name}: left out on a CPU, where it compiles for long")
        elif version.supports is not None and not version.supports(*inputs):
            print(f"{operation.name} {version.name}: does not take these inputs")
        else:
            yield version


def compute(operation: Operation, size: int, dtype: str, device: str, steps: int) -> None:
    """All versions in turn, `steps` times."""
    inputs = operation.inputs(size, getattr(torch, dtype), device)
    operation.check(*inputs)
    work = {"bytes": operation.bytes_moved(*inputs), "flop": operation.flop(*inputs)}
    versions = list(able(operation, inputs, device))
    with annotate("warm_up"):
        for version in versions:
            with annotate(version.name):
                version.run(*inputs)
    for step in range(steps):
        with annotate(f"step_{step}"):
            for version in versions:
                with annotate(f"{version.name} {json.dumps(work)}"):
                    version.run(*inputs)
    if device == "cuda":
        torch.cuda.synchronize()
    print(f"{operation.name} of size {size}: {', '.join(v.name for v in versions) or 'nothing'}")


def main(name: str | None = None, size: int | None = None, doc: str | None = __doc__) -> None:
    """The program, of any operation or of the one named; `size` is that on a GPU."""
    parser = Arguments(doc, steps=5)
    if name is None:
        parser.add_argument("operation", choices=kernels.operations())
    parser.add_argument("--size", type=count, help="as kernels/ counts it; default: the usual one")
    parser.add_argument("--dtype", help="such as float16; default: the operation's first")
    given = parser.given()
    device = given.device
    operation = kernels.operation(name or given.operation)
    usual = (size or operation.sizes[-1]) if device == "cuda" else operation.small_sizes[-1]
    dtype = given.dtype or operation.dtypes[0]
    if dtype not in operation.dtypes:
        parser.error(f"{operation.name} does not take {dtype}: {', '.join(operation.dtypes)}")
    compute(operation, given.size or usual, dtype, device, given.steps)


if __name__ == "__main__":
    main()

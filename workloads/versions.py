"""Compute one operation of kernels/ in each of its versions, each in its own range.

    python workloads/versions.py add
    python workloads/versions.py transpose --size 4096 --dtype float16

Each version runs once to compile, and then once per step. Its range declares the minimum bytes and
FLOP of the operation, so that a report can relate them to the peak. Versions that cannot run on
this machine are skipped with a line each.

Expect: `kernel-share` finds each version under a range of its own, and `roofline` its percent of peak.

The ranges: warm_up around every version, and step_N around every version.
"""  # noqa: E501 (the finding is one line, for a program to read)

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from arguments import Arguments, count
from ranges import annotate

# The operations are in a folder beside this one; they are not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kernels
from traceview.trials.bench.operation import Operation, Version


def able(operation: Operation, inputs: tuple[object, ...], device: str) -> Iterator[Version]:
    """The versions that run on this machine with these inputs; prints why it skips the others."""
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
    """Run all versions in turn, `steps` times."""
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
    """Run the program for any operation, or the one named; `size` is the default on a GPU."""
    parser = Arguments(doc, steps=5)
    if name is None:
        parser.add_argument("operation", choices=kernels.operations())
    parser.add_argument(
        "--size", type=count, help="as kernels/ counts it; default: that of the operation"
    )
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

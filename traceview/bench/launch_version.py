"""A script for `traceview ptx`: calls one operation at one size, so that its kernels are compiled.

Its arguments: the operation's file, a size, a data type, the versions to call, and values of the
operation's parameters, such as batch=4. It runs in the process of traceview.ptx, where a launch
compiles and does nothing else.
"""

from __future__ import annotations

import sys


def main(path: str, size: str, dtype: str, *words: str) -> None:
    """Make the inputs on the pretended GPU and call each version once."""
    import torch

    from traceview.bench.loading import load_operation

    given = dict(word.split("=") for word in words if "=" in word)
    operation = load_operation(path).at(**{name: int(value) for name, value in given.items()})
    inputs = operation.inputs(int(size), getattr(torch, dtype), "cuda")
    for name in words:
        if "=" not in name:
            operation.version(name).run(*inputs)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A script for `traceview ptx` that calls versions of one operation, so that their kernels compile.

Its arguments are the operation's file, a size, a data type, the versions to call, and values of the
operation's parameters, such as batch=4. It runs headless: a launch compiles and does nothing else.
"""

from __future__ import annotations

import sys


def main(path: str, size: str, dtype: str, *words: str) -> None:
    """Make the inputs on the fake GPU and call each version once."""
    import torch

    from traceview.bench.loading import load_operation

    parameters = dict(word.split("=") for word in words if "=" in word)
    operation = load_operation(path).at(**{name: int(n) for name, n in parameters.items()})
    inputs = operation.inputs(int(size), getattr(torch, dtype), "cuda")
    for name in words:
        if "=" not in name:
            operation.version(name).run(*inputs)


if __name__ == "__main__":
    main(*sys.argv[1:])

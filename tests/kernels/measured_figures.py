"""Run as a program: what the registry holds, as JSON."""

import json

import torch

import kernels
from traceview.base.errors import InputError
from traceview.trials.bench.operation import error_line

REFUSED = {
    "add": lambda x: [(x, x.t()), (x, x[:2]), (x, x.double()), (x.t(), x.t()), (x[:0], x[:0])],
    "gelu": lambda x: [(x.t(),), (x.int(),), (x[:0],), (7,)],
    "softmax": lambda x: [(x.t(),), (x.flatten(),), (x.int(),), (x[:0],)],
    "sum": lambda x: [(x.t(),), (x[:0],), (None,)],
    "row_sum": lambda x: [(x.t(),), (x.flatten(),)],
    "column_sum": lambda x: [(x.t(),), (x.flatten(),)],
    "transpose": lambda x: [(x.t(),), (x.flatten(),), (x[:0],)],
    "strided_copy": lambda x: [(x.t(),), (x[:0],)],
    "divergence": lambda x: [(x,), (x.flatten().int(),), (x.flatten()[::2],)],
    "alignment": lambda x: [(x, x[:2]), (x, x[:, :3].contiguous()), (x.t(), x), (x, x.double())],
    "layer_norm": lambda x: [(x, x[0], x[:, 0].contiguous()), (x.t(), x[0], x[0]), (x, x, x)],
    "linear_relu": lambda x: [(x, x.t(), x[0]), (x, x, x[0].double()), (x, x, x[0, :3])],
    "matmul": lambda x: [(x, x), (x, x.t()), (x, x.int()), (x[:0], x), (x, x[0])],
    "low_precision_matmul": lambda x: [
        (x, x, x[0, 0]),
        (x.char(), x.char(), x[0]),
        (x.char(), x[:, :3].contiguous().char(), x[0, 0]),
        (x.t().char(), x.char(), x[0, 0].half()),
    ],
    "flash_attention": lambda x: [(x, x, x), (x[None, None],) * 3],
}


def refusal(name: str, inputs: tuple[object, ...]) -> str:
    operation = kernels.operation(name)
    try:
        kernels.dispatch(name, operation.versions[-1].name)(*inputs)
    except InputError as error:
        return str(error)
    except Exception as error:
        return f"not refused: {error_line(error)}"
    return "not refused"


def facts(name: str) -> dict[str, object]:
    operation = kernels.operation(name)
    given = torch.randn(4, 6)
    size, dtype = operation.small_sizes[1], operation.dtypes[0]
    inputs = operation.inputs(size, getattr(torch, dtype), "cpu")
    again = operation.inputs(size, getattr(torch, dtype), "cpu")
    return {
        "name": operation.name,
        "title": operation.title,
        "versions": [
            {
                "name": version.name,
                "needs": version.needs,
                "shows_its_code": bool(version.kernels or version.cuda_source),
                "says_what_it_does": bool(version.note or version.run.__doc__),
            }
            for version in operation.versions
        ],
        "sizes": [operation.sizes, operation.small_sizes],
        "bytes": operation.bytes_moved(*inputs),
        "flop": operation.flop(*inputs),
        "same": all(bool((a == b).all()) for a, b in zip(inputs, again, strict=True)),
        "refused": [refusal(name, each) for each in REFUSED.get(name, lambda _: [])(given)],
        "documented": [
            bool(each.__doc__)
            for each in (operation.inputs, operation.bytes_moved, operation.flop, operation.check)
        ],
    }


if __name__ == "__main__":
    for each in kernels.operations():
        print(json.dumps(facts(each)))

"""Small traces of torch.profiler, written in libkineto's own layout."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PID = 4242
H100 = {
    "id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85 * 10**9, "computeMajor": 9,
    "computeMinor": 0, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": 132,
    "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
}  # fmt: skip
MI300 = {
    "id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4,
    "maxThreadsPerMultiprocessor": 2048, "warpSize": 64, "numSms": 304,
    "maxSharedMemoryPerMultiProcessor": 65536,
}  # fmt: skip

ITEM = "<built-in method item of Tensor object at 0x7f00>"

Event = dict[str, Any]


def span(cat: str, name: str, start: object, length: object, **rest: Any) -> Event:
    """A complete event; `args` and other fields by keyword."""
    where = {"pid": PID, "tid": PID}
    return {"ph": "X", "cat": cat, "name": name, **where, "ts": start, "dur": length, **rest}


def call(name: str, start: object, length: object, correlation: int, **args: Any) -> Event:
    return span("cuda_runtime", name, start, length, args={"correlation": correlation, **args})


def kernel(name: str, start: object, length: object, correlation: int, **args: Any) -> Event:
    known = {"device": 0, "context": 1, "stream": 7, "correlation": correlation}
    shape = {"grid": [264, 1, 1], "block": [128, 1, 1], "registers per thread": 32}
    args = {**known, **shape, "shared memory": 1024, "est. achieved occupancy %": 0, **args}
    return span("kernel", name, start, length, pid=0, tid=args["stream"], args=args)


def copy(name: str, start: object, length: object, correlation: int, **args: Any) -> Event:
    known = {"device": 0, "context": 1, "stream": 7, "correlation": correlation}
    return span("gpu_memcpy", name, start, length, pid=0, tid=7, args={**known, **args})


def python(name: str, start: object, length: object, number: int, parent: int | None) -> Event:
    args = {"Python id": number, "Python parent id": parent}
    return span("python_function", name, start, length, args=args)


def training() -> list[Event]:
    """Three steps: an upload, two kernels, a loss read back; with Python stacks and memory."""
    events: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "ts": 0, "args": {"name": "py"}},
        python("train.py(9): <module>", 0, 3000, 1, None),
    ]
    for step in range(3):
        at, of = 1000 * step, 10 * step
        events += [
            span("user_annotation", f"ProfilerStep#{step}", at + 10, 950),
            python("train.py(4): train_step", at + 20, 900, of + 2, 1),
            span("cpu_op", "aten::mm", at + 100, 50, args={"Input Dims": [[64, 32], [32, 16]]}),
            call("cudaMemcpyAsync", at + 30, 10, of + 1),
            copy("Memcpy HtoD (Pageable -> Device)", at + 45, 5, of + 1, bytes=4096),
            call("cudaLaunchKernel", at + 110, 5, of + 2),
            kernel("gemm", at + 120, 200, of + 2),
            call("cudaLaunchKernel", at + 160, 5, of + 3),
            kernel("void add<float, 4>(float*)", at + 330, 100, of + 3),
            python(ITEM, at + 200, 400, of + 3, of + 2),
            call("cudaStreamSynchronize", at + 210, 300, of + 4),
            memory(at + 105, 1024, 5000 + 1024),
            memory(at + 600, -1024, 5000),
        ]  # fmt: skip
    return events


def memory(time: object, size: int, total: int) -> Event:
    args = {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": size, "Total Allocated": total}
    instant = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]"}
    return {**instant, "pid": PID, "tid": PID, "ts": time, "args": args}


def text(
    events: Iterable[Event],
    header: Mapping[str, Any] | None = None,
    footer: Mapping[str, Any] | None = None,
) -> str:
    """The trace as libkineto writes it: a line per field, and a comma on a line of its own."""
    head = {"schemaVersion": 1, "deviceProperties": [H100], **(header or {})}
    foot = {"traceName": "/tmp/t.json", **(footer or {})}
    written = ",\n".join(_event(event) for event in events)
    keys = "".join(f"\n  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items())
    return f'{{{keys}\n  "traceEvents": [\n{written}\n  ],{json.dumps(foot)[1:-1]}}}'


def _event(event: Event) -> str:
    fields = {key: value for key, value in event.items() if key != "args"}
    lines = [f"    {json.dumps(key)}: {_value(value)}" for key, value in fields.items()]
    if "args" in event:
        lines.append(f'    "args": {{\n      {json.dumps(event["args"])[1:-1]}\n    }}')
    return "  {\n" + ",\n".join(lines) + "\n  }"


def _value(value: object) -> str:
    """JSON; a Digits as it is written."""
    return str(value) if isinstance(value, Digits) else json.dumps(value)


class Digits(str):
    """A number as it stands in the file."""


def write(path: Path, events: Iterable[Event], **around: Mapping[str, Any]) -> Path:
    path.write_text(text(events, **around), encoding="utf-8")
    return path

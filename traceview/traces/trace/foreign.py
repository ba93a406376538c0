"""Traces of other programs: what a file is, and what to record instead.

A kind is told by what only its program writes, never by the name of the file.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from traceview.base.errors import TraceFormatError

_TORCH = "traceview record --backend torch SCRIPT, or torch.profiler"
_OF_AMD = f"record PyTorch on AMD GPUs with {_TORCH}; no other recording of them is read"
_OF_NVIDIA = "record the same program with traceview record SCRIPT, which runs nsys"
_OF_TABLES = (
    (re.compile(r"rocpd_"), "a rocpd database, as rocmProfileData and rocprofv3 write", _OF_AMD),
    (re.compile(r"(HSA|HIP|rocTX)$"), "a database of rocprof", _OF_AMD),
    (re.compile(r"CUPTI_ACTIVITY_KIND_"), "a database of nvprof", _OF_NVIDIA),
)
_OF_PROCESSES = (
    (re.compile(r"/.* Tensors$"), "a timeline of TensorFlow 1 (RunMetadata)", _OF_NVIDIA),
    (
        re.compile(r"/(?:device|host):"),
        "a trace of XLA's profiler (xprof, TensorBoard)",
        _OF_NVIDIA,
    ),
    (re.compile(r"GPU\d+$|CPU HIP API|CPU HSA API|COPY$"), "a trace of rocprof", _OF_AMD),
    (
        re.compile(r"(?:CPU|CUDA) functions$"),
        "a trace of torch.autograd.profiler, times of operators without kernels",
        f"record the same program with {_TORCH}",
    ),
)
_OF_KEYS = (
    (re.compile(r"rocprofiler-sdk"), "a recording of rocprofv3", _OF_AMD),
    (re.compile(r"viztracer"), "a trace of VizTracer, which sees no GPU", _OF_NVIDIA),
)
_OF_STARTS = (
    (b"NVR\0", "a report of Nsight Compute", "pass it beside a recording: --ncu FILE"),
    (b"\x1f\x8b", "compressed twice", "unpack it once"),
    (b"\xfd7zXZ", "compressed twice", "unpack it once"),
    (b"\x28\xb5\x2f\xfd", "compressed twice", "unpack it once"),
    (b"\x7fELF", "a program or the code of kernels", "inspect kernels with: traceview ptx FILE"),
)
_OF_NAMES = (
    (".py", "a script", "record it: traceview record FILE"),
    (".ptx", "the code of kernels", "inspect it: traceview ptx FILE"),
)
# The first field of an XSpace and of a Perfetto trace alike: number 1, with a length.
FIRST_FIELD = b"\x0a"
_XSPACE = re.compile(rb"/(?:host|device):|Task Environment")
_OF_TEXTS = (
    # The head of a table of `nsys stats` of 2019 to 2026; in JSON no string goes over a line's end.
    (
        re.compile(rb'^[ "|]*Time ?\(%\)[\s",|]+Total Time', re.MULTILINE),
        "a summary in text, as `nsys stats` and --stats=true print, without a time line",
        "pass the recording that it was made of: the .nsys-rep file, or its SQLite export",
    ),
    (
        re.compile(rb'\A\s*\[\s*\{\s*"(?:count"\s*:\s*\d+\s*\}\s*,|start(?:Enq|In)Ms")'),
        "a table of layers or runs by TensorRT (trtexec --exportProfile, --exportTimes), without a "
        "time line",
        _OF_NVIDIA,
    ),
)
_MOST_BEFORE_BYTES = 1 << 18
"""What a program prints before the first table, as far as it is looked through."""


def of_database(tables: Collection[str]) -> TraceFormatError | None:
    """The error for a database of another profiler; None if its tables tell none."""
    return _error(_OF_TABLES, tables)


def of_events(processes: Collection[str], keys: Collection[str]) -> TraceFormatError | None:
    """The error for a Chrome trace, by the names of its processes and the keys of its header."""
    return _error(_OF_PROCESSES, processes) or of_keys(keys)


def of_keys(keys: Collection[str]) -> TraceFormatError | None:
    """The error for JSON of another profiler, by its keys; None if they tell none."""
    return _error(_OF_KEYS, keys)


def of_start(name: str, start: bytes) -> TraceFormatError | None:
    """The error for a file by its first bytes, or of a text by its name; None if they tell none."""
    kinds = [each for each in _OF_STARTS if start.startswith(each[0])]
    named = [each for each in _OF_NAMES if name.endswith(each[0])]
    for _, what, remedy in (*kinds, *named):
        return TraceFormatError(f"it is {what}", remedy)
    return None


def check_text(start: bytes) -> None:
    """Raise TraceFormatError for the text of other tools that has no time line.

    Such as the tables that `nsys stats` prints, whatever comes before.
    """
    for sign, what, remedy in _OF_TEXTS:
        if sign.search(start[:_MOST_BEFORE_BYTES]):
            raise TraceFormatError(f"it is {what}", remedy)


def of_protocol_buffers(start: bytes) -> TraceFormatError:
    """The error for protocol buffers that are no export of traceview's."""
    if _XSPACE.search(start):
        return TraceFormatError("it is a profile of XLA's (xplane.pb, as JAX writes)", _OF_NVIDIA)
    return TraceFormatError(
        "it is a Perfetto trace that traceview did not write",
        f"{_OF_NVIDIA}, or pass the JSON of torch.profiler",
    )


def _error(
    kinds: Collection[tuple[re.Pattern[str], str, str]], names: Collection[str]
) -> TraceFormatError | None:
    for sign, what, remedy in kinds:
        if any(sign.match(name) for name in names):
            return TraceFormatError(f"it is {what}", remedy)
    return None

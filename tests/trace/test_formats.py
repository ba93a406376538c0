"""What a file is shows in its content: formats that are read, and those that are told in one line.

Each test varies what the programs that write such files vary.
"""

import gzip
import json
import lzma
import re
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from random import Random

import pytest

from tests.build import Export
from tests.trace.kineto.traces import Event, call, copy, kernel, span, text
from traceview.api.traces import export, load
from traceview.base.errors import ToolNotFoundError, TraceFormatError
from traceview.traces.facts.ranges.origins import program_ranges
from traceview.traces.facts.steps.steps import steps
from traceview.traces.reporting import analyze
from traceview.traces.trace import Trace

# Copies of torch's recorder on CUPTI alone, whose direction is in their arguments.

KINDS = {"HtoD": ("pageable", "device"), "DtoH": ("device", "pinned"), "DtoD": ("device", "device")}
WRITTEN: dict[str, Callable[[list[Event]], str]] = {
    "as libkineto": text,
    "compact": lambda events: json.dumps({"traceEvents": events}, separators=(",", ":")),
    "a list": json.dumps,
}


def _copies(as_arguments: bool, category: str) -> list[Event]:
    events: list[Event] = [kernel("gemm", 0.5, 20, 1)]
    for at, (kind, (source, target)) in enumerate(KINDS.items(), 2):
        name, kinds = f"Memcpy {kind} ({source.title()} -> {target.title()})", {}
        if as_arguments:
            name, kinds = "Memcpy", {"copy kind": kind, "src kind": source, "dst kind": target}
        event = copy(name, 100 * at, 10, at, bytes=4096 * at, **kinds)
        events += [call("cudaMemcpyAsync", 100 * at - 9, 5, at), {**event, "cat": category}]
    return events


@pytest.mark.parametrize(
    ("written", "category"), list(product(WRITTEN, ("gpu_memcpy", "Memcpy"))), ids=str
)
def test_copies_with_their_direction_in_arguments(tmp_path: Path, written: str, category: str):
    of_both = []
    for as_arguments in (False, True):
        path = tmp_path / f"{as_arguments}.json"
        path.write_text(WRITTEN[written](_copies(as_arguments, category)))
        of_both.append(list(load(path).copies.rows()))
    assert of_both[0] == of_both[1]
    assert [row["direction"] for row in of_both[1]] == ["H2D", "D2H", "D2D"]


# Files of other profilers.


def _chrome(*processes: str, **header: object) -> bytes:
    events = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for pid, name in enumerate(processes, 1)
    ]
    work = [
        {"ph": "X", "name": "k", "pid": 1, "tid": 0, "ts": 50.0 * at, "dur": 40.0, "args": {}}
        for at in range(30)
    ]
    return json.dumps({**header, "traceEvents": [{}, *events, *work]}).encode()


def _older(*processes: str) -> bytes:
    """Events of processes that are names, without metadata or categories."""
    work = [
        {"ph": "X", "name": "aten::add", "pid": name, "tid": 0, "ts": 9.5 * at, "dur": 9.0}
        for at in range(30)
        for name in processes
    ]
    flow = {"ph": "s", "name": "aten::add", "pid": processes[0], "cat": "cpu_to_cuda", "ts": 1.0}
    return json.dumps([flow, *work]).encode()


def _database(*tables: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    for table in tables:
        connection.execute(f"CREATE TABLE {table} (id INTEGER, name TEXT)")
    return connection.serialize()


def _xspace(*planes: str) -> bytes:
    parts = []
    for number, name in enumerate(planes):
        plane = bytes([8, number, 0x12, len(name)]) + name.encode()
        parts.append(bytes([0x0A, len(plane)]) + plane)
    return b"".join(parts)


FOREIGN = {
    "rocprof": (_chrome("CPU HIP API", "GPU0"), "rocprof", "--backend torch"),
    "rocprof, two GPUs": (_chrome("GPU0", "GPU1"), "rocprof", "--backend torch"),
    "rocprofv3": (b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "rocprofv3", "--backend torch"),
    "rocpd": (_database("rocpd_kernel_dispatch_a1", "rocpd_string_a1"), "rocpd", "--backend torch"),
    "rocprof's database": (_database("HSA", "COPY", "A"), "of rocprof", "--backend torch"),
    "rocmProfileData": (_database("rocpd_api", "rocpd_op"), "rocmProfileData", "--backend torch"),
    "nvprof": (
        _database("CUPTI_ACTIVITY_KIND_KERNEL", "StringTable"),
        "nvprof",
        "traceview record",
    ),
    "TensorFlow 1": (
        _chrome(
            "Allocators", "/device:GPU:0/stream:all Compute", "/device:GPU:0/stream:all Tensors"
        ),
        "TensorFlow 1",
        "traceview record",
    ),
    "TensorFlow 1 on a CPU": (
        _chrome("/job:localhost/task:0/cpu:0 Compute", "/job:localhost/task:0/cpu:0 Tensors"),
        "TensorFlow 1",
        "traceview record",
    ),
    "torch before 1.8.1": (_older("CPU functions", "CUDA functions"), "autograd", "torch.profiler"),
    "torch without a GPU": (_older("CPU functions"), "autograd", "--backend torch"),
    "without metadata": (_older("functions"), "Chrome trace", "torch.profiler"),
    "xprof": (_chrome("/device:GPU:0 Compute", "/host:CPU"), "XLA", "traceview record"),
    "xprof of a host": (_chrome("/host:CPU python3"), "XLA", "traceview record"),
    "xplane": (_xspace("/host:CPU", "/device:GPU:0"), "xplane.pb", "traceview record"),
    "xplane of a task": (_xspace("Task Environment"), "xplane.pb", "traceview record"),
    "perfetto": (b"\x0a\x06\x50\x01\x6a\x02\x08\x01" * 9, "Perfetto", "JSON of torch.profiler"),
    "viztracer": (_chrome("main", viztracer_metadata={}), "VizTracer", "traceview record"),
    "another program's": (_chrome("browser"), "Chrome trace", "torch.profiler"),
}
_LAYER = {"name": "MatMul_13", "timeMs": 0.59, "averageMs": 0.0018, "percentage": 0.0198}
FOREIGN |= {
    f"TensorRT, {kind}, {indent}": (
        json.dumps(rows, indent=indent, separators=(",", " : ")).encode(),
        "TensorRT",
        "traceview record",
    )
    for indent in (None, 2)
    for kind, rows in {
        "layers": [{"count": 330}, *[_LAYER] * 9],
        "runs": [{"startEnqMs": 0.1, "endEnqMs": 0.2}] * 9,
        "runs of older": [{"startInMs": 0.1, "endInMs": 0.2}] * 9,
    }.items()
}
NAMES = ("t.json", "t.sqlite", "t", "t.pftrace", "t.xplane.pb", "t.json.gz", "t.db.xz")
PACKED = {".gz": gzip.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("kind", FOREIGN)
def test_files_of_other_profilers_are_told_under_any_name(tmp_path: Path, kind: str):
    content, what, remedy = FOREIGN[kind]
    for name in NAMES:
        path = tmp_path / name
        path.write_bytes(PACKED.get(path.suffix, bytes)(content))
        with pytest.raises(TraceFormatError) as raised:
            load(path)
        assert "\n" not in str(raised.value)
        assert what in raised.value.what, name
        assert remedy in str(raised.value), name


@pytest.mark.parametrize(
    "name", ["t.nsys-rep", "t.qdrep", "t.db", "t", "t.pftrace", "t.nsys-rep.gz"]
)
def test_an_export_is_read_under_any_name(tmp_path: Path, name: str):
    plain = Export().launch((1, 2), (3, 9)).write(tmp_path / "plain.sqlite")
    path = tmp_path / name
    path.write_bytes(PACKED.get(path.suffix, bytes)(plain.read_bytes()))
    assert len(load(path).kernels) == 1


@pytest.mark.parametrize("name", ["t.sqlite", "t.json", "report", "t.nsys-rep"])
def test_a_report_is_given_to_nsys_under_any_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("traceview.traces.recorders.export_report", _no_nsys)
    (tmp_path / name).write_bytes(b"NVIDIA Tegra Profiler" + bytes(99))
    with pytest.raises(ToolNotFoundError):
        load(tmp_path / name)


def _no_nsys(_: Path) -> Path:
    raise ToolNotFoundError("nsys is missing", "install it")


# Perfetto traces that traceview exported.


@pytest.mark.parametrize("name", ["mlp_sync", "two_processes", "graph_nodes", "jax"])
def test_an_exported_perfetto_trace_is_the_recording(
    name: str, unpack: Callable[[str], Path], tmp_path: Path
):
    source = load(unpack(name))
    for suffix in (".pftrace", ".pftrace.gz"):
        read = load(export(source, perfetto=tmp_path / f"t{suffix}"))
        assert read.recorder == source.recorder
        assert {n: list(t.rows()) for n, t in read.tables.items()} == {
            n: list(t.rows()) for n, t in source.tables.items() if n not in source.absent
        }


def test_an_exported_perfetto_trace_cut_anywhere(tmp_path: Path):
    trace = Export().range("step", 0, 99).launch((1, 2), (3, 9)).load(tmp_path)
    whole = export(trace, perfetto=tmp_path / "t.pftrace").read_bytes()
    path, outcomes = tmp_path / "cut.pftrace", set()
    for end in range(1, len(whole), 41):
        path.write_bytes(whole[:end])
        try:
            outcomes.add(len(load(path).kernels) == 1)
        except TraceFormatError as error:
            outcomes.add("cut off" in str(error) or "Perfetto" in str(error))
    assert outcomes == {True}


def test_an_exported_perfetto_trace_with_flipped_bytes(tmp_path: Path):
    trace = Export().range("step", 0, 99).launch((1, 2), (3, 9)).load(tmp_path)
    whole = export(trace, perfetto=tmp_path / "t.pftrace").read_bytes()
    random = Random(0)
    for name, packed in (("t.pftrace", bytes), ("t.pftrace.gz", gzip.compress)):
        for _ in range(60):
            content = bytearray(packed(whole))
            content[random.randrange(min(3_000, len(content)))] ^= 1 << random.randrange(8)
            (tmp_path / name).write_bytes(content)
            with suppress(TraceFormatError):
                assert len(load(tmp_path / name).kernels) <= 1


# Exports of nsys from 2020 on name the GPU.

GPU_TABLES = {
    "2020": "vmId, deviceId, name, busLocation, isDiscrete",
    "2022": "vmId, id, name, busLocation, isDiscrete, smCount",
    "2024, another order": "name, id, uuid, vmId, computeMajor, computeMinor, smCount",
}
FACTS = {"name": "NVIDIA GeForce RTX 3080", "smCount": 68, "computeMajor": 8, "computeMinor": 6}


@pytest.mark.parametrize(
    ("year", "schema"), list(product(GPU_TABLES, ("3.0.0", "3.7.2", "3.30.1", "")))
)
def test_every_export_names_its_gpu(tmp_path: Path, year: str, schema: str):
    path = Export(schema or "3.0.0").launch((1, 2), (3, 9)).write(tmp_path / "t.sqlite")
    with sqlite3.connect(path) as connection:
        (vm,) = connection.execute("SELECT vmId FROM TARGET_INFO_GPU").fetchone()
        connection.execute("DROP TABLE TARGET_INFO_GPU")
        connection.execute(f"CREATE TABLE TARGET_INFO_GPU ({GPU_TABLES[year]})")
        columns = GPU_TABLES[year].split(", ")
        values = [FACTS.get(name, vm if name == "vmId" else 0) for name in columns]
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO TARGET_INFO_GPU VALUES ({marks})", values)
        if not schema:
            connection.execute("DROP TABLE EXPORT_META_DATA")
    assert load(path).devices.cells("name") == [FACTS["name"]]


# Kernels without a time.

ABSOLUTE_US = 1_615_207_264_505_000


@pytest.mark.parametrize(
    ("share", "began"), list(product((0.02, 0.4, 0.5, 0.9), (ABSOLUTE_US, 7_000_000_000)))
)
def test_kernels_of_torch_without_a_time_leave_the_others(tmp_path: Path, share: float, began: int):
    events = []
    for at in range(400):
        timed, number = at >= 400 * share, at + 1
        start = began + 100 * at
        events.append(call("cudaLaunchKernel", start, 5, number))
        events.append(kernel("gemm", start + 20 if timed else 0, 60 if timed else 0, number))
    path = tmp_path / "t.json"
    path.write_text(text(events))
    trace = load(path)
    assert len(trace.kernels) == round(400 * (1 - share))
    assert len(trace.api_calls) == 400
    assert trace.api_calls["end_ns"].max() < 50_000_000


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_kernels_of_nsys_without_a_time_leave_the_others(tmp_path: Path, share: float):
    recorded = Export()
    for at in range(100):
        start = 10_000 * at + 500
        times = (start + 40, start + 900) if at >= 100 * share else (0, 0)
        recorded.launch((start, start + 9), times)
    trace = recorded.load(tmp_path)
    assert len(trace.kernels) == round(100 * (1 - share))
    assert [left_out.reason for left_out in trace.impossible] == ["no time"]


# Recordings without GPU work: the cause, and what the CPU's calls say.


def _said(trace: Trace) -> str:
    findings = analyze(trace, ["trace-health"]).findings
    return " ".join(f"{f.finding.message} {f.finding.remedy}" for f in findings)


@pytest.mark.parametrize("driver", ["13.3", "12.8", "14.0"])
@pytest.mark.parametrize("kernels", [0, 5])
def test_a_driver_newer_than_nsys_is_the_cause(tmp_path: Path, driver: str, kernels: int):
    recorded = Export().call("cudaGetDeviceCount", 5, 90)
    for at in range(kernels):
        recorded.launch((100 * at + 100, 100 * at + 110), (100 * at + 120, 100 * at + 150))
    recorded.diagnostic("Not all CUDA events might have been collected.", severity="error")
    recorded.diagnostic(
        f"Installed CUDA driver version ({driver}) is not supported by this build of Nsight "
        "Systems. CUDA trace will be collected using libraries for driver version 12.8",
        severity="error",
    )
    said = _said(recorded.load(tmp_path))
    assert f"driver (CUDA {driver}) is newer than nsys" in said
    assert "Update nsys" in said
    assert "shorter run" not in said


@pytest.mark.parametrize("longest", ["cudaMalloc", "cudaMemcpy", "cudaStreamSynchronize"])
def test_calls_without_gpu_work_are_answered_for_the_cpu(tmp_path: Path, longest: str):
    recorded = Export()
    for at in range(0, 20_000_000, 1_000_000):
        recorded.call("cudaLaunchKernel", at, at + 10_000)
        for number, name in enumerate(("cudaMalloc", "cudaMemcpy", "cudaStreamSynchronize"), 1):
            begins = at + 200_000 * number
            recorded.call(name, begins, begins + (150_000 if name == longest else 20_000))
    report = analyze(recorded.load(tmp_path))
    share = 300 / (19.75 if longest == "cudaStreamSynchronize" else 19.62)
    assert f" on the CPU: {share:.1f} % in {longest} (20 calls)" in report.verdict.text
    assert not any("copy call" in each.finding.message for each in report.findings)


@pytest.mark.parametrize("calls", [("cudaMalloc", "cudaFree"), ("cuMemAlloc_v2", "cuMemFree_v2")])
@pytest.mark.parametrize(
    ("passes", "took_us", "told"), [(30, 200, True), (30, 10, False), (8, 200, False)]
)
def test_calls_alone_show_a_loop_that_allocates(tmp_path: Path, calls, passes, took_us, told):
    recorded = Export()
    for at in range(0, passes * 1_000_000, 1_000_000):
        recorded.call("cudaLaunchKernel", at, at + 10_000)
        for number, name in enumerate(calls, 1):
            begins = at + 300_000 * number
            recorded.call(name, begins, begins + took_us * 1000)
    message = analyze(recorded.load(tmp_path)).findings[0].finding.message
    assert ("allocate before the loop, and use that memory again" in message) is told


@pytest.mark.parametrize("copies", [1, 7])
def test_launches_that_left_no_kernel_beside_copies_are_told(tmp_path: Path, copies: int):
    recorded = Export()
    for at in range(0, 20_000, 1_000):
        recorded.call("cudaLaunchKernel", at, at + 90)
    for at in range(20_000, 20_000 + 1_000 * copies, 1_000):
        recorded.copy((at, at + 90), (at + 100, at + 900), bytes=4096)
    first = analyze(recorded.load(tmp_path)).findings[0].finding
    assert first.severity == "high"
    assert first.message.startswith("Work was launched and none of it was recorded")
    assert "cudaGetLastError" in str(first.remedy)


@pytest.mark.parametrize("kinds", [("CUDA",), ("CUDA", "NVTX"), ("NVTX",)])
def test_a_program_without_a_call_of_cuda_lost_nothing(tmp_path: Path, kinds: tuple[str, ...]):
    recorded = Export().range("main", 0, 9_000).capture("CAPTURE_EVENT_TYPE", "Cuda")
    recorded.diagnostic("No CUDA events collected. Does the process use CUDA?")
    for kind in kinds:
        recorded.diagnostic(f"Not all {kind} events might have been collected.")
    said = _said(recorded.load(tmp_path))
    assert "nsys recorded no CUDA call" in said
    assert "much is missing" not in said


@pytest.mark.parametrize("key", ["traceMarker", "mod"])
@pytest.mark.parametrize("calls", [3, 10, 40])
def test_the_ranges_that_pyprof_writes_per_call_are_no_steps(tmp_path: Path, key: str, calls: int):
    recorded = Export()
    for at in range(0, 1_000 * calls, 1_000):
        name = f"{{'{key}': ['net.py:34', 'x'], 'op': 'conv', 'args': {at}}}"
        recorded.range(name, at, at + 900).launch((at + 9, at + 99), (at + 100, at + 800))
    trace = recorded.load(tmp_path)
    assert not program_ranges(trace).any()
    assert not len(steps(trace))


def test_spans_of_a_program_without_cuda_stay_a_trace(tmp_path: Path):
    path = tmp_path / "t.json"
    path.write_text(text([span("user_annotation", "step", 0, 9)]))
    assert len(load(path).ranges) == 1


def packed(content):
    """Without a time: it would be in the name of a test."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.ncu-rep", b"NVR\0\2\0\0\0", "a report of Nsight Compute; pass it beside a recording"),
        ("a.sqlite", b"\x7fELF\2\1\1", "a program or the code of kernels; inspect kernels with"),
        ("a.json.gz", packed(packed(b"{}")), "compressed twice; unpack it once"),
        ("a.sqlite.gz", packed(lzma.compress(b"x")), "compressed twice; unpack it once"),
        ("train.py", b"import torch\n", "a script; record it: traceview record"),
        ("gelu.ptx", b".version 8.4\n", "the code of kernels; inspect it: traceview ptx"),
    ],
)
def test_a_file_for_another_verb_leads_to_it(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        TraceFormatError, match=re.escape(f"cannot read {tmp_path / name}: it is {said}")
    ):
        load(tmp_path / name)


HEADS = {
    "2019": "Time(%)      Total Time       Calls         Average  Name",
    "2022": " Time(%)  Total Time (ns)  Num Calls    Average   Name",
    "2025": " Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Range",
    "csv": "Time (%),Total Time (ns),Num Calls,Avg (ns)",
}


@pytest.mark.parametrize("name", ["profile.txt", "notes.md", "log", "report.json", "a.sqlite.gz"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "before",
    ["", "[3/8] Executing 'nvtx_sum' stats report\n\n", "$ nsys profile ./a\r\n\r\n", "x\n" * 9999],
)
def test_the_tables_that_nsys_prints_are_a_summary_of_a_recording(tmp_path, name, head, before):
    """Whatever the file is called, and whatever the program printed before them."""
    text = f"{before}{HEADS[head]}\n {'-' * 8}\n 81,0  33.916.556.517  44.004  x\n".encode()
    (tmp_path / name).write_bytes(packed(text) if name.endswith(".gz") else text)
    with pytest.raises(TraceFormatError, match=r"a summary in text.*pass the recording"):
        load(tmp_path / name)


def test_a_trace_that_names_such_a_table_is_a_trace(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(text([span("user_annotation", "\nTime (%)  Total Time (ns)", 0, 9)]))
    assert len(load(path).ranges) == 1


@pytest.mark.parametrize("address", ["https://example.org/a.sqlite", "http://x/b.json"])
def test_an_address_is_not_read(address):
    with pytest.raises(TraceFormatError, match="URLs are not read; download the file"):
        load(address)

"""One trace of which everything is known, and what other tools have got wrong about it.

Two processes count their correlation ids from 1, on one GPU, in contexts and on streams of the same
numbers. The first one runs 90 launches ahead of the GPU, waits 9 ms for it, uploads with four
blocking copies, replays a graph of 50 kernels that was recorded node by node, waits on the GPU
(not on the CPU) for an event, and leaves the backward pass to autograd's thread.
"""

import hashlib
from pathlib import Path

import pytest

import traceview
from tests.build import Export, process_id
from traceview.cli import run

US, MS = 1_000, 1_000_000
AUTOGRAD = 3
OTHERS_KERNELS = 120


def known() -> Export:
    export = Export()
    for each in (
        ahead,
        synchronize,
        upload,
        replay,
        layers,
        wait_on_the_gpu,
        backward,
        other_process,
    ):
        each(export)
    return export


def ahead(export: Export) -> None:
    """90 launches within 0.9 ms, of kernels that run from 1 to 10 ms."""
    export.range("ahead", 0, 950 * US)
    for number in range(90):
        call, kernel = number * 10 * US, MS + number * 100 * US
        export.launch((call, call + 5 * US), (kernel, kernel + 100 * US), name="long")


def synchronize(export: Export) -> None:
    export.range("read", 960 * US, 10 * MS + 100 * US)
    export.sync("cuStreamSynchronize", MS, 10 * MS)


def upload(export: Export) -> None:
    """The GPU is idle for 0.5 ms behind the wait, until the first copy."""
    export.range("upload", 10_200 * US, 12 * MS)
    for number in range(4):
        call = 10_450 * US + number * 200 * US
        copy = (call + 50 * US, call + 140 * US)
        export.copy((call, call + 150 * US), copy, api="cudaMemcpy_v3020", bytes=1 << 20)


def replay(export: Export) -> None:
    export.range("replay", 13 * MS, 13_100 * US)
    nodes = [(13_200 * US + n * 10 * US, 13_210 * US + n * 10 * US) for n in range(50)]
    export.graph_launch((13_010 * US, 13_050 * US), nodes, name="node")


def layers(export: Export) -> None:
    """Two kernels of 200 µs in one range; the other process has calls of the same numbers."""
    export.range("layer", 14 * MS, 14_100 * US)
    for number in range(2):
        call, kernel = 14 * MS + number * 20 * US, 14_200 * US + number * 200 * US
        export.launch((call, call + 10 * US), (kernel, kernel + 200 * US), name="twice")


def wait_on_the_gpu(export: Export) -> None:
    """A stream waits 5 ms for an event. The call itself returns at once."""
    number = 900
    export.call("cudaStreamWaitEvent_v3020", 15 * MS, 15 * MS + 2 * US, correlation=number)
    export.raw(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        start=15 * MS,
        end=20 * MS,
        deviceId=0,
        contextId=1,
        streamId=8,
        correlationId=number,
        globalPid=1 << 48 | process_id(1) << 24,
        syncType=2,
    )


def backward(export: Export) -> None:
    export.named_thread(AUTOGRAD, "pt_autograd_0").range("backward", 20 * MS, 21 * MS)
    for number in range(16):
        call, kernel = 20 * MS + number * 20 * US, 20_050 * US + number * 30 * US
        where = {"thread": AUTOGRAD, "name": "gradient"}
        export.launch((call, call + 5 * US), (kernel, kernel + 30 * US), **where)


def other_process(export: Export) -> None:
    export.range("theirs", 30 * MS, 40 * MS, process=2)
    for number in range(OTHERS_KERNELS):
        call, kernel = 30 * MS + number * 50 * US, 30_010 * US + number * 50 * US
        export.launch((call, call + 5 * US), (kernel, kernel + 20 * US), process=2, name="theirs")


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return known().write(tmp_path_factory.mktemp("known") / "known.sqlite")


@pytest.fixture(scope="module")
def trace(path):
    return traceview.load(path)


def rows(trace, analysis, table, **options):
    report = traceview.analyze(trace, analysis, **options)
    return list(report.outcomes[analysis].tables[table].rows())


def the(found, **wanted):
    [row] = [row for row in found if all(row[name] == value for name, value in wanted.items())]
    return row


def test_ids_of_two_processes_do_collide(trace):
    calls = trace.api_calls
    numbers = [set(calls["correlation_id"][calls["process"] == process]) for process in (0, 1)]
    assert len(numbers[0] & numbers[1]) > 100


def test_nine_milliseconds_of_waiting_are_found(trace):
    [call] = [r for r in rows(trace, "sync-stalls", "calls") if r["api"] == "cuStreamSynchronize"]
    assert (call["calls"], call["wait_ns"]) == (1, 9 * MS)
    site = the(rows(trace, "sync-stalls", "sites"), api="cuStreamSynchronize")
    assert (site["range_path"], site["benign_ns"], site["idle_after_ns"]) == (
        "read",
        9 * MS,
        # Of 500 µs the last 50 went into moving the bytes of the copy that ended the gap.
        450 * US,
    )


def test_four_blocking_copies_are_four(trace):
    copies = the(rows(trace, "memory-copies", "copies"), direction="H2D", host_memory="pageable")
    assert (copies["calls"], copies["bytes"], copies["total_ns"]) == (4, 4 << 20, 360 * US)
    assert the(rows(trace, "sync-stalls", "calls"), api="cudaMemcpy")["calls"] == 4


def test_fifty_kernels_of_a_graph_are_fifty(trace):
    replayed = the(rows(trace, "kernel-share", "ranges"), range_path="replay")
    assert (replayed["calls"], replayed["total_ns"]) == (50, 500 * US)
    check = the(rows(trace, "trace-health", "checks"), check="CUDA graphs")
    assert check["status"] == "note"
    assert check["detail"].startswith("50 operations of 1 graph launch were recorded node by node")


def test_running_ahead_is_no_starvation(trace):
    streams = rows(trace, "run-ahead", "streams")
    assert the(streams, process_id=process_id(1), stream_id=7)["max_queue_depth"] == 90
    [device] = rows(trace, "run-ahead", "devices", ranges="ahead")
    assert (device["verdict"], device["max_queue_depth"]) == ("gpu-bound", 90)
    [idle] = rows(trace, "gpu-idle", "devices", ranges="ahead")
    assert (idle["busy_ns"], idle["idle_ns"]) == (9 * MS, 0)


def test_a_ranges_gpu_time_is_not_doubled(trace):
    layer = the(rows(trace, "kernel-share", "ranges"), range_path="layer")
    assert (layer["calls"], layer["total_ns"]) == (2, 400 * US)
    theirs = the(rows(trace, "kernel-share", "ranges"), range_path="theirs")
    assert (theirs["calls"], theirs["total_ns"]) == (OTHERS_KERNELS, OTHERS_KERNELS * 20 * US)


def test_a_wait_of_the_gpu_for_an_event_is_none_of_the_cpu(trace):
    apis = {row["api"] for row in rows(trace, "sync-stalls", "calls")}
    assert apis == {"cuStreamSynchronize", "cudaMemcpy"}


def test_kernels_of_autograds_thread_are_in_the_backward_pass(trace):
    usual = the(rows(trace, "kernel-share", "ranges"), short_name="gradient")
    assert (usual["range_path"], usual["calls"], usual["inferred_calls"]) == ("backward", 16, 16)
    assert usual["inferred_ns"] == 480 * US
    strict = the(rows(trace, "kernel-share", "ranges", strict=True), short_name="gradient")
    assert (strict["range_path"], strict["calls"], strict["inferred_calls"]) == (
        "(unattributed)",
        16,
        0,
    )


def test_shares_add_up(trace):
    for strict in (False, True):
        found = rows(trace, "kernel-share", "ranges", strict=strict)
        assert sum(row["calls"] for row in found) == 90 + 50 + 2 + 16 + OTHERS_KERNELS
        assert sum(row["share_pct"] for row in found) == pytest.approx(100.0, abs=1e-9)


def test_the_idle_times_add_up(trace):
    [device] = rows(trace, "gpu-idle", "devices")
    causes = rows(trace, "gpu-idle", "causes")
    assert sum(row["idle_ns"] for row in causes) == device["idle_ns"]
    assert device["busy_ns"] == 9 * MS + (360 + 500 + 400 + 480 + OTHERS_KERNELS * 20) * US


def test_the_file_stays_as_it_was_byte_by_byte(path, tmp_path, monkeypatch, capsys):
    def state() -> tuple[str, float, list[str]]:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return digest, path.stat().st_mtime_ns, sorted(p.name for p in path.parent.iterdir())

    before = state()
    monkeypatch.chdir(tmp_path)
    assert run(["report", str(path), "--html", "--json", "known.json"]) == 0
    assert run(["report", str(path), "--strict", "--all"]) == 0
    assert state() == before
    assert "no range is inferred" in capsys.readouterr().out

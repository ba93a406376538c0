"""`traceview convert`: the converted trace gets the report of the original."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import traceview
from tests.trace.kineto.traces import Event, call, kernel, span, training, write
from traceview.base.errors import InputError
from traceview.cli import run

RECORDINGS = ("mlp_sync", "two_processes", "graph_nodes", "ddp_late")


def report_json(trace: Path, folder: Path) -> dict[str, Any]:
    """The report in JSON, without the path of the trace."""
    target = folder / f"{trace.name}.report.json"
    assert run(["report", str(trace), "--json", str(target)]) == 0
    found: dict[str, Any] = json.loads(target.read_text())
    assert found["trace"].pop("path") == str(trace)
    return found


def hostile() -> list[Event]:
    """Names that break SQL, terminals and UTF-8, and ids that are texts."""
    names = ["'; DROP TABLE kernels; --", "\x1b[31mred", "a\nb\0c", "<script>", "é" * 300, '"', ""]
    events: list[Event] = [span("user_annotation", "ProfilerStep#1", 0, 500)]
    for number, name in enumerate(names, 1):
        events += [
            call("cudaLaunchKernel", 20 * number, 5, number),
            kernel(name, 20 * number + 8, 9, number, stream=number % 3),
        ]
    events.append(span("cpu_op", "aten::mm", 1, 2) | {"pid": "Spans", "tid": "PyTorch"})
    return events


@pytest.mark.parametrize("events", [training, hostile], ids=["training", "hostile"])
def test_a_trace_of_torch_profiler(events: Any, tmp_path: Path, capsys: Any):
    source, out = write(tmp_path / "train.json", events()), tmp_path / "train.sqlite"
    assert run(["convert", str(source), str(out)]) == 0
    assert capsys.readouterr() == ("", f"Wrote {out}\n")
    assert report_json(out, tmp_path) == report_json(source, tmp_path)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_of_nsys(name: str, unpack: Any, tmp_path: Path):
    source, out = unpack(name), tmp_path / "converted.sqlite"
    assert traceview.convert(source, out) == out
    assert report_json(out, tmp_path) == report_json(source, tmp_path)


def test_perfetto_is_what_export_writes(tmp_path: Path):
    source = write(tmp_path / "t.json", hostile())
    out, exported = tmp_path / "a.perfetto-trace", tmp_path / "b.pftrace"
    assert run(["convert", str(source), str(out)]) == 0
    assert run(["convert", str(source), str(tmp_path / "c.pftrace.gz")]) == 0
    assert run(["export", str(source), "--perfetto", str(exported)]) == 0
    assert out.read_bytes() == exported.read_bytes()
    assert gzip.decompress((tmp_path / "c.pftrace.gz").read_bytes()) == out.read_bytes()


def test_a_file_is_replaced_with_force_only(tmp_path: Path, capsys: Any):
    source, out = write(tmp_path / "t.json", training()), tmp_path / "t.sqlite"
    out.write_text("mine")
    assert run(["convert", str(source), str(out)]) == 1
    assert out.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert run(["convert", str(source), str(out), "--force"]) == 0
    assert len(traceview.load(out).kernels) == 6
    assert run(["convert", str(out), str(out), "--force"]) == 1


def test_what_fails_leaves_no_file(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch):
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"traceEvents": 5}')
    assert run(["convert", str(damaged), str(tmp_path / "out.sqlite")]) == 1
    source = write(tmp_path / "t.json", training())

    def interrupted(_: object, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("traceview.traces.trace.stored_writer.write_trace", interrupted)
    assert run(["convert", str(source), str(tmp_path / "out.sqlite")]) == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged.json", "t.json"]
    assert capsys.readouterr().err.splitlines()[0].startswith("traceview: error: cannot read")


@pytest.mark.parametrize("name", ["t.txt", "t", "t.json", "t.pftrace.xz", "t.nsys-rep"])
def test_a_format_that_is_not_written(name: str, tmp_path: Path):
    source = write(tmp_path / "s.json", training())
    with pytest.raises(InputError, match=r"end it in \.sqlite, \.pftrace"):
        traceview.convert(source, tmp_path / name)


def test_misuse_exits_2(tmp_path: Path, capsys: Any):
    assert run(["convert", "a.sqlite"]) == 2
    assert run(["convert", "a.sqlite", "-"]) == 2
    assert "name a file" in capsys.readouterr().err

"""What an export says of itself, and exports of every known schema."""

from pathlib import Path
from typing import Any

import pytest

from tests.export_file import SCHEMAS, ExportFile
from tests.trace.nsys.exports import (
    KERNEL,
    NVTX,
    TRACED,
    cells,
    kernel,
    pid,
    tid,
)
from traceview.traces.trace.load import load


def test_what_the_trace_says_of_itself(read: Any) -> None:
    secret = ("PROCESS_0:ENVIRONMENT_VARIABLE_3", "TOKEN=abc")
    capture = [*TRACED, ("RATE_HZ", "0"), ("RATE_HZ", "9"), secret, ("X", "HF_TOKEN=abc")]
    run = [{"name": "command", "value": "python x.py"}]
    trace = read({"TRACEVIEW_RUN": run}, capture=capture)
    assert trace.recorder == "nsys"
    assert trace.recorder_version == "2025.3.2.0"
    assert trace.export_schema_version == "3.20.3"
    assert trace.run == {"command": "python x.py"}
    assert trace.capture == {"CAPTURE_EVENT_TYPE": "Cuda,NvtxEvents", "RATE_HZ": "0"}


@pytest.mark.parametrize(
    ("version", "warned"),
    [("3.0.0", 0), ("3.30.9", 0), ("3.31.0", 1), ("4.0.0", 1), ("2.9.1", 1), ("odd", 1)],
)
def test_other_schemas_are_read_with_one_warning(read: Any, version: str, warned: int) -> None:
    trace = read({KERNEL: [kernel(1, 2)]}, meta={"EXPORT_SCHEMA_VERSION": version})
    assert len(trace.warnings) == warned
    assert all(version in text or "no schema" in text for text in trace.warnings)
    assert len(trace.kernels) == 1


def test_an_export_without_a_version_is_read_with_a_warning(tmp_path: Path) -> None:
    export = ExportFile("3.0.0").drop("EXPORT_META_DATA")
    export.raw(KERNEL, start=1, end=2, globalPid=pid(10), streamId=7)
    trace = load(export.write(tmp_path / "t.sqlite"))
    assert len(trace.kernels) == 1
    assert "no schema version" in trace.warnings[0]


def test_the_older_meta_table(read: Any) -> None:
    trace = read({KERNEL: [kernel(1, 2)]}, meta_table="EXPORT_META_DATA")
    assert trace.export_schema_version == "3.20.3"


@pytest.mark.parametrize("schema", [name for name in SCHEMAS if name[0].isdigit()])
def test_every_known_schema_is_read(schema: str, tmp_path: Path) -> None:
    export = ExportFile(schema)
    named = {"demangledName": export.string("k()"), "shortName": export.string("k")}
    export.raw(KERNEL, start=1, end=2, globalPid=pid(10), streamId=7, **named)
    export.raw(NVTX, start=1, end=2, eventType=59, text="step", globalTid=tid(10, 11))
    trace = load(export.write(tmp_path / "t.sqlite"))
    assert cells(trace, "kernels", "name", "short_name", "stream_id") == [("k()", "k", 7)]
    assert cells(trace, "ranges", "name") == [("step",)]
    assert trace.warnings == ()
    assert trace.export_schema_version == schema

"""Malformed, truncated and hostile traces: an answer or one line, never a traceback."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.plain_library import in_place_of_c
from tests.trace.kineto.traces import call, kernel, python, span, text, training, write
from tests.zstd import compress
from traceview.base.errors import TraceFormatError
from traceview.traces.reporting import analyze
from traceview.traces.trace.kineto import chunks
from traceview.traces.trace.load import load

pytestmark = pytest.mark.slow

PACKERS = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": compress,
}


@pytest.fixture(params=[64, 4 << 20], ids=["chunks of 64 bytes", "one chunk"])
def chunk_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", request.param)


def test_every_hundredth_byte(tmp_path: Path):
    whole = text(training(), footer={"distributedInfo": {"pg_config": [{"a": 1}, {"b": 2}]}})
    path, counts, lines = tmp_path / "t.json", [], {0}
    for size in range(1, len(whole), 100):
        path.write_text(whole[:size])
        try:
            trace = load(path)
        except TraceFormatError as error:
            lines.add(str(error).count("\n"))
            continue
        assert "ends in the middle" in trace.warnings[0]
        counts.append(len(trace.tables.get("kernels", ())))
        if size % 1000 == 1:
            analyze(trace)
    assert lines == {0}
    assert counts == sorted(counts)
    assert counts[-1] == 6


@pytest.mark.parametrize("size", [7, 100, 1000, 4096, 1 << 16])
def test_pieces_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", size)
    footer = {"distributedInfo": {"pg_config": [{"ranks": [0]}, {"ranks": [1]}], "rank": 0}}
    raw = text(training(), footer=footer).encode()
    pieces = iter([raw[at : at + size] for at in range(0, len(raw), size)])
    source = chunks.ChromeTrace(pieces)
    with in_place_of_c():
        events = [event.name for some in source.chunks() for event in some]
    assert events == [event["name"] for event in training()]
    assert source.metadata["distributedInfo"]["rank"] == 0
    assert (source.truncated, source.unreadable, source.mended) == (False, 0, 0)


@pytest.mark.usefixtures("chunk_bytes")
@pytest.mark.parametrize(
    "name",
    ['a "quoted" name', "C:\\Users\\x", "tab\there", "},{", "\\", 'ends with "'],
)
def test_names_that_were_not_escaped(name: str, tmp_path: Path):
    mark = "@@@"
    events = [span("user_annotation", mark, 0, 5), *training()]
    path = tmp_path / "t.json"
    path.write_text(text(events).replace(mark, name))
    trace = load(path)
    assert len(trace.kernels) == 6
    assert name in trace.ranges.cells("name")


@pytest.mark.usefixtures("chunk_bytes")
def test_hostile_names_that_were_escaped(tmp_path: Path):
    names = ["},{", '"', "\\", "<script>alert(1)</script>", "\x1b[31m", "a\nb", "é" * 5000, ""]
    events = [kernel(name, 10 * at, 5, at) for at, name in enumerate(names)]
    trace = load(write(tmp_path / "t.json", events))
    assert trace.kernels.cells("name") == [name or "(unnamed)" for name in names]
    assert trace.warnings == ()


def test_not_a_number_and_bytes_that_are_no_text(tmp_path: Path):
    whole = text([kernel("k", 0, 5, 1, load="@nan"), kernel("@bytes", 9, 5, 2)]).encode()
    path = tmp_path / "t.json"
    path.write_bytes(whole.replace(b'"@nan"', b"-nan").replace(b"@bytes", b"a\xff\xfeb"))
    trace = load(path)
    assert trace.kernels.cells("name") == ["k", "a\ufffd\ufffdb"]
    assert "malformed" in trace.warnings[0]


ONE_OF_EACH = list({event.get("cat"): event for event in training()[:14]}.values())
METADATA = ("process_name", "process_labels", "thread_name", "other")
WRONG: list[Any] = [None, "x", -5, 1.5, 10**30, [], {}, [1, "a"], {"a": {}}, True]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_any_type_anywhere(value: Any, tmp_path: Path):
    for field in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args"):
        broken = [{**event, field: value} for event in training()[1:14:3]]
        trace = load(write(tmp_path / "t.json", [*broken, *training()]))
        assert len(trace.kernels) >= 6
    for event in ONE_OF_EACH:
        if args := event.get("args"):
            broken = [{**event, "args": {**args, key: value}} for key in args]
            load(write(tmp_path / "t.json", [*broken, *training()]))


@pytest.mark.parametrize("cat", ["fwdbwd", "kernel", "user_annotation", "another"])
def test_metadata_with_a_category(cat: str, tmp_path: Path):
    """Beside a malformed event the others are read in parts, here one of known categories alone."""
    names = [{**training()[0], "name": name, "cat": cat} for name in METADATA]
    events = [kernel("k", 0, 5, 99, load="@nan"), *names, *training()[1:], training()[0]]
    path = tmp_path / "t.json"
    path.write_text(text(events).replace('"@nan"', "-nan"))
    trace = load(path)
    assert len(trace.kernels) == 7
    assert trace.processes.cells("name") == ["py"]


def test_missing_fields(tmp_path: Path):
    for missing in {field for event in ONE_OF_EACH for field in event}:
        bare = [
            {key: value for key, value in event.items() if key != missing}
            for event in ONE_OF_EACH
            if missing in event
        ]
        trace = load(write(tmp_path / "t.json", [*bare, *training()]))
        assert len(trace.kernels) >= 6
    bare = [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}, {}, 5, None, "x", []]
    (tmp_path / "t.json").write_text(json.dumps(bare))
    assert len(load(tmp_path / "t.json").kernels) == 1


@pytest.mark.parametrize("suffix", PACKERS)
def test_archives(suffix: str, tmp_path: Path):
    path = tmp_path / f"t.json{suffix}"
    path.write_bytes(PACKERS[suffix](text(training()).encode()))
    assert len(load(path).kernels) == 6


@pytest.mark.parametrize("suffix", PACKERS)
def test_truncated_archives(suffix: str, tmp_path: Path):
    events = [kernel(f"k{at * 7919 % 100_003}", at * 10, 5, at) for at in range(3000)]
    packed = PACKERS[suffix](text(events).encode())
    path = tmp_path / f"t.json{suffix}"
    path.write_bytes(packed[: len(packed) * 3 // 4])
    try:
        trace = load(path)
    except TraceFormatError:
        # One block of xz or zstd may be the whole file.
        assert suffix != ".gz"
        return
    assert 0 < len(trace.kernels) < 3000
    assert "ends in the middle" in trace.warnings[0]


def test_content_counts_and_not_the_name(tmp_path: Path):
    assert len(load(write(tmp_path / "trace.txt", training())).kernels) == 6


@pytest.mark.parametrize(
    "content",
    ['{"a": 1}', "[]", "{", "[", '{"traceEvents": []}', '{"traceEvents": 5}', "[1, 2]", "{}" * 9],
)
def test_other_json(content: str, tmp_path: Path):
    path = tmp_path / "t.json"
    path.write_text(content)
    with pytest.raises(TraceFormatError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_deep_nesting(tmp_path: Path):
    path = tmp_path / "t.json"
    path.write_text(text([*training(), span("x", "@", 0, 1)]).replace('"@"', "[" * 100_000))
    assert len(load(path).kernels) == 6


def test_circles_of_callers(tmp_path: Path):
    events = [python("a.py(1): f", 0, 9, 1, 2), python("b.py(1): g", 0, 9, 2, 1), *training()]
    load(write(tmp_path / "t.json", events))
    events = [call("cudaLaunchKernel", 5, -3, 1), kernel("k", 9, -4, 1)]
    trace = load(write(tmp_path / "t.json", events))
    assert (len(trace.kernels), len(trace.api_calls)) == (0, 0)
    assert "1 of 1 kernels (end before start)" in trace.warnings[0]

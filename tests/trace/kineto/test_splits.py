"""Wherever a trace is cut into blocks that threads scan ahead, its tables are the same."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import traceview
from tests.trace.kineto.traces import PID, Event, call, kernel, span, text
from traceview.traces.trace import Trace
from traceview.traces.trace.kineto import chunks, reader, scanner

pytestmark = pytest.mark.slow
FAKE = kernel("of an argument", 1, 2, 3) | {"pid": 99}
INNER = [{"ph": "X"}, FAKE, {"ph": "X"}]
EVENTS: list[Event] = [
    span("user_annotation", '}, {"ph": "X"}, {', 1, 90),
    span("cpu_op", "aten::mm", 2, 7, args={"Input Dims": [[64, 32], [32, 16]], "of": INNER}),
    call("cudaLaunchKernel", 3, 2, 1),
    kernel("gemm \\ é \u4e2d", 5, 9, 1),
    {"ph": "s", "id": 1, "pid": 5, "tid": 5, "ts": 3, "cat": "ac2g", "name": "ac2g"},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": 0, "args": {"name": "},{"}},
]
FORMS = {
    "as torch writes": text(EVENTS).encode(),
    "in one line": json.dumps(
        {"traceEvents": EVENTS}, separators=(",", ":"), ensure_ascii=False
    ).encode(),
}
Cells = Mapping[str, Mapping[str, list[object]]]


def tables(raw: bytes) -> Cells:
    """All cells of all tables, by name."""
    return cells(reader.read(iter([raw, b" "]), "t.json"))


def cells(trace: Trace) -> Cells:
    """All cells of all tables of a trace without warnings, by name."""
    assert not trace.warnings
    return {
        name: {column.name: list(table.cells(column.name)) for column in table.columns}
        for name, table in trace.tables.items()
    }


def cut_at(place: int, patch: pytest.MonkeyPatch) -> list[int]:
    """Let the first block end there, and the second be the rest. Returns the cuts not yet made."""
    cuts = [place]
    patch.setattr(chunks, "_seeming_end", lambda _: cuts.pop() if cuts else None)
    return cuts


def places_to_cut(events: bytes, step: int) -> list[int]:
    """Every `step`-th offset; all of them around what nests, escapes or takes several bytes."""
    telling = {at for at, byte in enumerate(events) if byte in b"{}[]\\" or byte > 127}
    near = {at + shift for at in telling for shift in (-1, 0, 1)}
    return sorted((near - {-1}) | {*range(0, len(events) + 1, step), len(events)})


@pytest.mark.parametrize(("form", "step"), [("in one line", 5), ("as torch writes", 29)])
def test_offsets_as_the_end_of_a_block(
    form: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = FORMS[form]
    whole = tables(raw)
    events = raw[raw.index(b"[", raw.index(b"traceEvents")) + 1 :]
    for place in places_to_cut(events, step):
        cuts = cut_at(place, monkeypatch)
        assert tables(raw) == whole, events[:place]
        assert not cuts


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chunk_bytes", [1, 50, 300, 1000])
def test_cuts_within_strings_and_arguments(
    form: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = FORMS[form]
    whole = tables(raw)
    pieces = [raw[at : at + chunk_bytes] for at in range(0, len(raw), chunk_bytes)]
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(chunks, "BLOCK_BYTES", chunk_bytes)
    read = reader.ChromeTrace
    monkeypatch.setattr(reader, "ChromeTrace", lambda *_: read(iter(pieces)))
    assert tables(raw) == whole


@pytest.mark.parametrize(("form", "step"), [("in one line", 7), ("as torch writes", 19)])
def test_every_offset_as_the_end_of_a_block_of_a_file(
    form: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, raw = tmp_path / "t.json", FORMS[form]
    path.write_bytes(raw)
    whole = tables(raw)
    for place in range(raw.index(b"[", raw.index(b"traceEvents")) + 1, len(raw), step):
        cuts = [place]
        monkeypatch.setattr(
            scanner, "_cut", lambda _, start, end, cuts=cuts: cuts.pop() if cuts else end
        )
        assert cells(traceview.load(path)) == whole, raw[:place]
        assert not cuts


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chunk_bytes", [1, 50, 300, 1000])
@pytest.mark.parametrize("cut_bytes", [8, 64])
def test_blocks_of_a_file_within_strings_and_arguments(
    form: str, chunk_bytes: int, cut_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, raw = tmp_path / "t.json", FORMS[form]
    path.write_bytes(raw)
    whole = tables(raw)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(scanner, "_CUT_BYTES", cut_bytes)
    assert cells(traceview.load(path)) == whole


@pytest.mark.parametrize("kept", [0.5, 0.9, 0.99])
def test_a_file_that_becomes_shorter_is_truncated(
    kept: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(FORMS["as torch writes"])
    real = scanner.blocks_of_file

    def shortened(*given: object) -> Iterator[object]:
        blocks = list(real(*given))  # type: ignore[arg-type]
        with path.open("r+b") as file:
            file.truncate(int(kept * path.stat().st_size))
        yield from blocks

    monkeypatch.setattr(chunks, "blocks_of_file", shortened)
    assert any("ends in the middle" in each for each in traceview.load(path).warnings)


def test_what_only_looks_like_events_leaves_no_names_and_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = FORMS["in one line"]
    start = raw.index(json.dumps(INNER, separators=(",", ":")).encode()[1:])
    cuts = cut_at(start - raw.index(b"[") - 1, monkeypatch)
    trace = reader.read(iter([raw, b" "]), "t.json")
    assert not cuts
    assert trace.kernels.texts("name").values.tolist() == [EVENTS[3]["name"]]
    assert list(trace.processes.cells("process_id")) == [PID]

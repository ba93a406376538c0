"""The compiled reader of events: tables equal those of the decoder, whatever a file holds."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.oracles.plain_library import without_c
from tests.trace.kineto.traces import Digits, Event, call, kernel, span, text, training
from traceview.base.errors import TraceFormatError
from traceview.traces.trace.kineto import chunks, scanner
from traceview.traces.trace.kineto.scanner import EventScanner, ScannedTable, ScanStop
from traceview.traces.trace.load import load
from traceview.traces.trace.model import Trace

DATA = Path(__file__).parents[2] / "data"
RECORDED = sorted([*DATA.glob("torch/*.json.xz"), *DATA.glob("ranks/kinds.rank*.json.xz")])

COLLECTIVE = span(
    "cpu_op", "record_param_comms", 5, 9, args={
        "Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "Group size": 2,
        "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
    },
)  # fmt: skip
ROCM = [
    span("hip_runtime", "hipLaunchKernel", 6, 9, args={"correlation": 90, "grid": [2, 1, 1]}),
    span("hip_runtime", "hipMemcpy", 7, 9, args={"correlation": 91, "size": 77}),
    span("kernel", "k", 8, 9, pid=1, tid=3, args={"correlation": 90}),
]
UNREAD = [
    {"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": 5.1, "cat": "ac2g", "name": "ac2g", "bp": "e"},
    {"ph": "i", "s": "g", "name": "Record Window End"},
    span("gpu_user_annotation", "step", 1, 2),
    span("Trace", "PyTorch Profiler (0)", 0, 9, pid="Spans", tid="PyTorch Profiler"),
]
EVERY = [*training(), COLLECTIVE, *ROCM, *UNREAD]
WORDS = [
    "null", "-1", "0", "1.5", "1e3", "1e999", "9" * 18, "9" * 19, "9" * 100, "true", '"5"', '""',
    '"\\u00e9"', '"\\ud83d\\ude00"', "[]", "[1, 2]", "[1, 2, 3]", "[1, 2, -3]", "{}", '{"a": [1]}',
    '"-5-"', '"--5"', "[" * 40 + "]" * 40, "[" * 90 + "]" * 90, "0.0005",
    "123456789012345.6789", "2147483648",
]  # fmt: skip
FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each scan took."""
    counts: list[int] = []
    real = EventScanner.scan

    def scan(self: EventScanner, given: bytes, at: int, limit: int) -> scanner.Scan:
        result = real(self, given, at, limit)
        counts.append(result.events)
        return result

    monkeypatch.setattr(EventScanner, "scan", scan)
    return counts


def outcome(path: Path) -> Trace | str:
    try:
        return load(path)
    except TraceFormatError as error:
        return str(error)


def both(path: Path) -> tuple[Trace | str, Trace | str]:
    """What the compiled reader and the decoder say."""
    return outcome(path), without_c(lambda: outcome(path))


def assert_equal(path: Path) -> None:
    compiled, decoded = both(path)
    if isinstance(compiled, str) or isinstance(decoded, str):
        assert compiled == decoded
        return
    assert (compiled.warnings, compiled.run) == (decoded.warnings, decoded.run)
    assert list(compiled.tables) == list(decoded.tables)
    for name, table in decoded.tables.items():
        for column in table.columns:
            cells = compiled.tables[name].cells(column.name)
            assert list(cells) == list(table.cells(column.name)), (name, column.name)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recordings(path: Path, scanned: list[int]) -> None:
    assert_equal(path)
    assert sum(scanned) > 1000


@pytest.mark.parametrize("chunk_bytes", [64, 1000, 1 << 20])
def test_every_kind_of_event(
    chunk_bytes: int, tmp_path: Path, scanned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk_bytes)
    path = tmp_path / "t.json"
    for written in (text(EVERY), json.dumps({"traceEvents": EVERY}), json.dumps(EVERY)):
        path.write_text(written)
        assert_equal(path)
    assert sum(scanned) == 3 * len(EVERY)


def test_events_that_torch_writes_become_no_objects() -> None:
    events = [kernel("gemm", 9 * at, 5, at) for at in range(100)]
    events += [call("cudaLaunchKernel", 9 * at, 5, at) for at in range(50)]
    raw = json.dumps(events).encode()[1:]
    scan = EventScanner().scan(raw, 0, len(raw))
    assert (scan.stopped, scan.events, raw[scan.end :]) == (ScanStop.ENDED, 150, b"]")
    assert (list(scan.others), list(scan.details)) == ([], [])
    rows = [columns.shape[1] for columns in scan.columns]
    assert rows[ScannedTable.KERNELS] == 100
    assert rows[ScannedTable.CALLS] == 50


def test_any_value_of_any_field(tmp_path: Path) -> None:
    every = [event for event in EVERY if event.get("cat") not in (None, "Trace", "ac2g")]
    one_of_each = list({event["cat"]: event for event in every}.values())
    path, mark = tmp_path / "t.json", '"@@@"'
    for word in WORDS:
        changed = [_with(event, place) for event in one_of_each for place in _places(event)]
        path.write_text(text([*changed, *training()]).replace(mark, word))
        assert_equal(path)


def test_values_that_repeat_for_a_while(tmp_path: Path) -> None:
    """Each value stays for some events, then changes: also to one that begins alike."""
    path, words = tmp_path / "t.json", ("1", "12", "1", "null", "132", "132", "-1", "1.0", '"1"')
    for event in (kernel("gemm", 5, 9, 3), call("cudaLaunchKernel", 5, 9, 3), COLLECTIVE, *ROCM):
        changed = [_with(event, place) for place in _places(event) for _ in range(3 * len(words))]
        before, *rest = text([*changed, *training()]).split('"@@@"')
        written = [words[at // 3 % len(words)] + each for at, each in enumerate(rest)]
        path.write_text("".join([before, *written]))
        assert_equal(path)


def test_a_key_that_occurs_twice_in_events_alike(tmp_path: Path) -> None:
    once, path = text([kernel("gemm", 5, 9, 3)] * 4 + training()), tmp_path / "t.json"
    for key in ('"stream": ', '"tid": '):
        path.write_text(once.replace(key, f"{key}7, {key}", 3))
        assert_equal(path)


def test_more_arguments_than_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    events = []
    for at in range(12):
        event = kernel("gemm", 5 + at, 9, 3)
        event["args"] = {**{f"key {n}": n * (at // 3) for n in range(60)}, **event["args"]}
        events.append(event)
    path.write_text(text([*events, *training()]))
    assert_equal(path)


def _places(event: Event) -> list[tuple[str, ...]]:
    fields = [(field,) for field in FIELDS if field in event]
    return fields + [("args", key) for key in event.get("args", {})]


def _with(event: Event, place: tuple[str, ...]) -> dict[str, Any]:
    changed = {**event, place[0]: "@@@"}
    if len(place) > 1:
        changed["args"] = {**event["args"], place[1]: "@@@"}
    return changed


@pytest.mark.parametrize("time", ["1790857026000000.123", "0.0005", "0.00049", "-3.25", "-0", "7"])
def test_times_are_exact(time: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(text([kernel("k", Digits(time), Digits("1.0015"), 1), *training()]))
    assert_equal(path)


def test_keys_that_are_escaped_or_there_twice(tmp_path: Path) -> None:
    path, event = tmp_path / "t.json", json.dumps(kernel("k", 1, 2, 3))
    for old, new in (
        ('"ph"', '"p\\u0068"'),
        ('"ph": "X"', '"ph": "X", "ph": "i"'),
        ('"device": 0', '"device": 0, "device": 1'),
        ('"stream"', '"str\\u0065am"'),
        ('"cat": "kernel"', '"cat": "kernel", "cat": "cpu_op"'),
    ):
        path.write_text(f"[{json.dumps(training())[1:-1]}, {event.replace(old, new)}]")
        assert_equal(path)


SPACES = ["", " ", "\n    ", " " * 40]


def test_neighbours_that_are_written_differently(tmp_path: Path, scanned: list[int]) -> None:
    random = Random(7)
    known = [event for event in EVERY if event.get("cat") != "Trace"]
    events = [_shuffled(random.choice(known), random) for _ in range(600)]
    path = tmp_path / "t.json"
    path.write_text(f"[{','.join(events)}]")
    assert_equal(path)
    assert sum(scanned) == len(events)


def _shuffled(event: Event, random: Random) -> str:
    """An event with its keys, on both levels, in any order and with any space between them."""
    fields = random.sample([*event.items()], len(event))
    if random.random() < 0.5:
        fields.append((random.choice(["cats", "t", "durs", "bp"]), random.choice([1, "b", []])))
    written = [
        json.dumps(key)
        + random.choice(SPACES)
        + ":"
        + random.choice(SPACES)
        + (_shuffled(value, random) if isinstance(value, dict) else json.dumps(value))
        for key, value in fields
    ]
    between = random.choice(SPACES) + "," + random.choice(SPACES)
    return "{" + random.choice(SPACES) + between.join(written) + random.choice(SPACES) + "}"


def test_a_last_event_that_ends_with_an_empty_list(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([*training(), {**kernel("last", 1, 2, 3), "more": []}]))
    assert_equal(path)
    trace = load(path)
    assert not trace.warnings
    assert "last" in trace.kernels.cells("name")


def test_a_text_that_breaks_off_anywhere_is_read_up_to_its_last_whole_event() -> None:
    raw = text(EVERY).encode()
    raw = raw[raw.index(b'"traceEvents": [') + 16 :]
    whole = EventScanner().scan(raw, 0, len(raw))
    ends = []
    for size in range(0, len(raw), 7):
        scan = EventScanner().scan(raw[:size], 0, size)
        assert scan.stopped in (ScanStop.NEEDS_MORE, ScanStop.ENDED)
        rest = EventScanner().scan(raw, scan.end, len(raw))
        assert scan.events + rest.events == whole.events
        ends.append(scan.end)
    assert ends == sorted(ends)


def test_more_events_than_one_scan_has_room_for(tmp_path: Path, scanned: list[int]) -> None:
    events = [span("user_annotation", f"n{at}", at, 1) for at in range(2 * scanner.MOST_EVENTS + 5)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(events, separators=(",", ":")))
    assert load(path).ranges.cells("name")[-1] == f"n{len(events) - 1}"
    assert max(scanned) <= scanner.MOST_EVENTS
    assert sum(scanned) == len(events)

"""Reports of Nsight Compute: the same rows as its own CSV of them, and files that are none."""

import gzip
import lzma
import random
import struct

import pytest

from tests.fuzz.mutants import bytes_changed
from tests.places import DATA
from traceview.base.errors import InputError
from traceview.cli import run
from traceview.traces.trace.ncu import read_counters
from traceview.traces.trace.ncu_report import is_report, read_report

REPORT = lzma.decompress((DATA / "launches.ncu-rep.xz").read_bytes())


def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number, value):
    """A field of a Protocol Buffers message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def sized(entry):
    return struct.pack("<I", len(entry)) + entry


def block(*launches, names=(), counted=None):
    payload = b"".join(map(sized, launches))
    table = b"".join(field(1, name.encode()) for name in names)
    counts = field(1, 0) + field(2, len(launches) if counted is None else counted)
    process = field(6, field(1, 77))
    return sized(counts + field(4, table) + field(5, len(payload)) + process) + payload


def launch(name, metrics, grid=(4, 2, 1)):
    """A launch with the values of metrics by the number of their name."""
    sides = [
        b"".join(field(n, side) for n, side in enumerate(size, 1)) for size in (grid, (128, 1, 1))
    ]
    values = [field(13, field(1, n) + field(2, field(5, value))) for n, value in metrics.items()]
    return field(6, name.encode()) + field(10, sides[0]) + field(11, sides[1]) + b"".join(values)


def read(tmp_path, content):
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(content)
    return read_report(path)


def report(*blocks, version=7):
    return b"NVR\0" + sized(field(1, version)) + b"".join(blocks)


NAMES = ["launch__grid_size", "dram__bytes_read.sum", "dram__bytes_write.sum"]


def test_every_launch_is_that_of_the_csv_which_ncu_made_of_the_same_report(tmp_path):
    csv = tmp_path / "launches.csv"
    csv.write_bytes(lzma.decompress((DATA / "launches.report.csv.xz").read_bytes()))

    table, remarks = read(tmp_path, REPORT)
    expected, _ = read_counters(csv)

    assert remarks == ()
    rows, printed = list(table.rows()), list(expected.rows())
    assert len(rows) == 28
    for row, line in zip(rows, printed, strict=True):
        # ncu prints bytes and instructions with a unit prefix and six digits at most.
        for counted in ("bytes", "flop"):
            assert row.pop(counted) == pytest.approx(line.pop(counted), rel=1e-5)
        assert row == line
    assert {line["flop_kind"] for line in printed} == {None, "fp16"}


def test_a_launch_and_blocks_that_leave_the_names_out_repeat_or_extend_them(tmp_path):
    blocks = [
        block(launch("first", {1: 1000, 2: 24}), names=NAMES),
        block(launch("second", {1: 1 << 40, 2: 0})),
        block(launch("third", {1: 5, 2: 6, 3: 7}), names=[*NAMES, "other"]),
        block(launch("fourth", {1: 1, 2: 1}), names=NAMES),
    ]
    table, remarks = read(tmp_path, report(*blocks))
    assert list(table.cells("short_name")) == ["first", "second", "third", "fourth"]
    assert list(table.cells("bytes")) == [1024.0, 2.0**40, 11.0, 2.0]
    assert list(table.cells("process_id")) == [77] * 4
    assert list(table.cells("grid_x")) == [4] * 4
    assert "tensor-core FLOP are missing" in remarks[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (report(version=8), "version 8; only 7"),
        (report(block(launch("k", {0: 1}), names=NAMES[:1])), "no metrics of device-memory"),
        (report(block(launch("k", {3: 1}), names=NAMES)), "damaged"),
        (report(block(launch("k", {1: 1}), names=NAMES), block(names=["x"])), "differ from block"),
        (report(block(launch("k", {1: 1}), names=NAMES, counted=2)), "damaged"),
        (report(block(field(6, b"k"), names=NAMES)), "damaged"),
        (report(block(launch("k", {1: 1}) + field(13, b""), names=NAMES)), "damaged"),
        (b"NVR\0", "damaged"),
        (gzip.compress(b"hello", mtime=0), "holds no report"),
        (gzip.compress(REPORT, mtime=0)[:1000], "damaged"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "damaged"),
    ],
)
def test_what_is_no_whole_report(tmp_path, content, said):
    with pytest.raises(InputError, match=said) as raised:
        read(tmp_path, content)
    assert raised.value.remedy


def test_a_damaged_report_of_ncu_is_refused_or_read(tmp_path):
    chance, outcomes = random.Random(2), set()
    for _ in range(60):
        try:
            read(tmp_path, bytes_changed(REPORT, chance, range(4, 40_000)))
            outcomes.add("read")
        except InputError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_a_report_that_breaks_off_or_is_overwritten_says_so_or_is_read(tmp_path):
    random.seed(1)
    small = report(block(launch("k", {1: 1, 2: 2}), names=NAMES), block(launch("k", {1: 3})))
    for end in range(5, len(small)):
        try:
            read(tmp_path, small[:end])
        except InputError:
            continue
    for _ in range(2000):
        damaged = bytearray(small)
        damaged[random.randrange(4, len(small))] = random.randrange(256)
        try:
            read(tmp_path, bytes(damaged))
        except InputError:
            continue


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_the_command_takes_it_packed_or_not(unpack, tmp_path, capsys, pack):
    path = tmp_path / "launches.ncu-rep"
    path.write_bytes(pack(REPORT))
    assert is_report(path)
    only = ["--only", "roofline", "--json"]
    assert run(["report", str(unpack("launches")), "--ncu", str(path), *only]) == 0
    assert '"basis": "counters (ncu)"' in capsys.readouterr().out


def test_numbers_beyond_any_column_are_cut_or_left_out(tmp_path):
    names = ("dram__bytes_read.sum", "dram__bytes_write.sum")
    absurd = launch("k", {0: 1 << 63, 1: 1}, grid=(1 << 69, 1, 1))
    table, _ = read(tmp_path, report(block(absurd, names=names)))
    (row,) = table.rows()
    assert row["grid_x"] == 1 << 62
    nan = field(13, field(1, 0) + field(2, varint(2 << 3 | 5) + struct.pack("<f", float("nan"))))
    table, _ = read(tmp_path, report(block(launch("k", {1: 1}) + nan, names=names)))
    assert next(table.rows())["bytes"] is None

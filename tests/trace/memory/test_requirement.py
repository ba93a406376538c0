"""A trace larger than memory is refused, before the memory is taken."""

import resource
import sqlite3
import subprocess
import sys

import pytest

from benchmarks.traces.generator import make_trace
from benchmarks.traces.shapes import Shape
from tests.build import Export
from traceview.base.errors import TooLargeError
from traceview.base.memory import Free
from traceview.traces.trace import memory as fits
from traceview.traces.trace.load import load
from traceview.traces.trace.sqlite import file as sqlite_file

KERNELS = 300


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("fits") / "run.sqlite"
    make_trace(path, KERNELS, Shape("one stream", processes=1, streams=1), seed=1)
    return path


def rows_of(path):
    with sqlite3.connect(path) as connection:
        there = {n for (n,) in connection.execute("SELECT name FROM sqlite_master")}
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in fits.BYTES_PER_ROW
            if table in there
        ]
    connection.close()
    return sum(counts)


def told(path):
    with sqlite_file.opened(path) as database:
        return sum(fits.row_counts(database).values())


PLAIN = {
    "CUPTI_ACTIVITY_KIND_KERNEL": 1_000_000,
    "CUPTI_ACTIVITY_KIND_RUNTIME": 1_300_000,
    "CUPTI_ACTIVITY_KIND_MEMCPY": 10_000,
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": 5_000,
    "NVTX_EVENTS": 1_281_252,
}


@pytest.mark.parametrize(
    ("shape", "counts", "screen", "page"),
    [
        ("plain", PLAIN, 560, 771),
        ("dynamic", PLAIN, 567, 808),
        ("processes", PLAIN, 491, 744),
        ("python-samples", PLAIN, 514, 771),
        ("operators", PLAIN | {"NVTX_EVENTS": 5_281_252}, 787, 1_199),
        ("dense", PLAIN | {"NVTX_EVENTS": 12_281_252}, 1_533, 2_164),
        ("graphs", {"CUPTI_ACTIVITY_KIND_KERNEL": 1_000_000, "NVTX_EVENTS": 1_000}, 373, 387),
    ],
)
def test_the_estimate_is_near_what_was_measured(shape, counts, screen, page):
    """Peaks in MB of the screen and of --html, of the shapes of benchmarks/traces/shapes.py."""
    found = fits.needed_bytes(counts) / 1e6
    assert screen <= found <= 1.3 * screen, shape
    assert 0.7 * page <= found <= page, shape


def test_a_name_in_each_range_is_near_what_was_measured():
    """literal-names: 639 and 1,114 MB, where 1.28 M ranges have names of 25 bytes."""
    each = fits.BYTES_PER_TEXT + 25 * fits.BYTES_PER_CHARACTER
    found = (fits.needed_bytes(PLAIN) + 1_281_252 * each) / 1e6
    assert 639 <= found <= 1.3 * 639
    assert 0.7 * 1_114 <= found <= 1_114


def test_rows_are_told_without_reading_them(made):
    assert told(made) == rows_of(made) > 2 * KERNELS


def test_tables_without_row_numbers_count_for_nothing(tmp_path):
    path = tmp_path / "odd.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE NVTX_EVENTS (a INTEGER PRIMARY KEY) WITHOUT ROWID")
        connection.execute("CREATE TABLE GPU_METRICS (RowID TEXT)")
        connection.execute("CREATE TABLE SCHED_EVENTS (a)")
        connection.execute("INSERT INTO NVTX_EVENTS VALUES (5)")
        connection.execute("INSERT INTO GPU_METRICS VALUES ('x')")
        connection.execute("INSERT INTO SCHED_EVENTS VALUES (1), (2)")
    connection.close()
    assert told(path) == 2


@pytest.mark.parametrize("last", [2**62, -(2**62)])
def test_an_absurd_row_number_is_bounded_by_the_size_of_the_file(tmp_path, last):
    path = tmp_path / "odd.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE SCHED_EVENTS (a)")
        connection.execute("INSERT INTO SCHED_EVENTS(rowid, a) VALUES (?, 1)", (last,))
    connection.close()
    assert 0 <= told(path) <= path.stat().st_size


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("NVTX_EVENTS", 1_647_000),
        ("GPU_METRICS", 2_333_000),
        ("SCHED_EVENTS", 1_555_000),
        ("CUDA_CALLCHAINS", 1_750_000),
    ],
)
def test_samples_take_less_than_what_is_joined(tmp_path, monkeypatch, table, rows):
    """Hours of GPU metrics are no reason to refuse a trace: 200 MB were free for this many."""
    monkeypatch.setattr(fits, "free_memory", lambda: Free(200 * 10**6, "on this machine"))
    monkeypatch.setattr(fits, "_LEAST_ROW_BYTES", 0.001)
    path = tmp_path / "long.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {table} (a)")
    connection.close()

    def check(last):
        with sqlite3.connect(path) as connection:
            connection.execute(f"INSERT INTO {table}(rowid) VALUES ({last})")
        connection.close()
        with sqlite_file.opened(path) as database:
            fits.check_fits(database, "long", {})

    check(rows * 99 // 100)
    with pytest.raises(TooLargeError):
        check(rows * 101 // 100)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("op {}, seq = {}", 1_000 * 124, 1_000 * 136), ("layer {} of {}", 0, 0)],
)
@pytest.mark.parametrize("registered", [False, True])
def test_texts_that_each_range_has_for_itself_take_memory(tmp_path, name, least, most, registered):
    export = Export(registered_names=registered)
    for row in range(1_000):
        number = row if "seq" in name else row % 100
        export.range(name.format(number, number), row, row + 1)
    with sqlite_file.opened(export.write(tmp_path / "ranges.sqlite")) as database:
        found = fits.text_bytes(database, fits.row_counts(database))
    # Of a registered text the length is not asked for.
    assert (1_000 * 100 if registered and least else least) <= found <= most


def test_a_trace_without_ranges_has_no_texts(tmp_path):
    path = Export().drop("NVTX_EVENTS").write(tmp_path / "x.sqlite")
    with sqlite_file.opened(path) as database:
        assert fits.text_bytes(database, fits.row_counts(database)) == 0


@pytest.fixture
def scarce(monkeypatch):
    """As if each row took a megabyte on a machine that has 1 GB to spare."""
    monkeypatch.setattr(fits, "BYTES_PER_ROW", dict.fromkeys(fits.BYTES_PER_ROW, 10**6))
    monkeypatch.setattr(fits, "free_memory", lambda: Free(10**9, "on this machine"))


def test_what_does_not_fit_is_refused_with_a_remedy(made, scarce):
    with pytest.raises(TooLargeError) as refused:
        load(made)
    said = str(refused.value)
    assert said.startswith(f"a report of {made} does not fit into memory: its {rows_of(made):,} ")
    assert "events need about 1.1 GB, and 1.0 GB are free on this machine" in said
    assert "use a machine with 2 GB" in said
    assert "nsys profile --duration=SECONDS" in said
    assert "\n" not in said


def test_what_fits_is_read(made, scarce, monkeypatch):
    monkeypatch.setattr(fits, "free_memory", lambda: Free(3 * 10**9, "on this machine"))
    assert len(load(made).kernels) == KERNELS


def test_who_insists_is_believed(made, scarce, monkeypatch):
    monkeypatch.setenv(fits.IGNORE_MEMORY, "1")
    assert len(load(made).kernels) == KERNELS


def test_more_rows_than_have_numbers_are_refused_whoever_insists(made, monkeypatch):
    monkeypatch.setenv(fits.IGNORE_MEMORY, "1")
    monkeypatch.setattr(fits, "MOST_ROWS", rows_of(made))
    assert len(load(made).kernels) == KERNELS
    monkeypatch.setattr(fits, "MOST_ROWS", rows_of(made) - 1)
    with pytest.raises(TooLargeError, match="are supported; record less: nsys profile"):
        load(made)


def test_a_small_trace_is_read_whatever_the_system_tells(tmp_path, monkeypatch):
    monkeypatch.setattr(fits, "free_memory", lambda: Free(0, "on this machine"))
    assert len(Export().launch(call=(0, 2), kernel=(8, 20)).load(tmp_path).kernels) == 1


def test_nothing_is_refused_where_nothing_is_told(made, scarce, monkeypatch):
    monkeypatch.setattr(fits, "free_memory", lambda: None)
    assert len(load(made).kernels) == KERNELS


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what is taken")
def test_a_process_of_limited_memory_says_so_in_one_line(tmp_path):
    """Under `ulimit -v`: 40,000 kernels as if of ten millions, then for what they are."""
    path = tmp_path / "long.sqlite"
    make_trace(path, 40_000, Shape("one stream", processes=1, streams=1), seed=1)
    code = (
        "import sys; from traceview.traces.trace import memory; "
        "memory.BYTES_PER_ROW = dict.fromkeys(memory.BYTES_PER_ROW, int(sys.argv[1])); "
        "from traceview.cli import main; main(['report', sys.argv[2]])"
    )
    limit = 3 * 10**9

    def report(bytes_a_row):
        return subprocess.run(
            [sys.executable, "-c", code, str(bytes_a_row), str(path)],
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            check=False,
        )

    refused, done = report(10**5), report(150)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("traceview: error: a report of ")
    assert "under the 3.0 GB limit of ulimit -v" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert (done.returncode, done.stderr) == (0, "")

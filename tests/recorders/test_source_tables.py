"""Lines of the program's files in a recording: which are stored, and which are not."""

import pytest

from tests.build import Export
from tests.recorders.fake_nsys import traceview
from tests.recorders.test_recording import environment  # noqa: F401 (a fixture)
from traceview.traces.recorders import written_tables
from traceview.traces.recorders.written_tables import AROUND, MOST_LINES, write_source_tables
from traceview.traces.trace.load import load
from traceview.traces.trace.scrub.scrubber import scrub

PROGRAM = "".join(f"line_{number} = {number}\n" for number in range(1, 31))
SCRIPT = """\
import time

import nvtx


def wait():
    with nvtx.annotate("traceview:sync:run.py:8 in wait: time.sleep(0.02) [Tensor.item]"):
        time.sleep(0.02)


with nvtx.annotate("step_0"):
    wait()
"""
SAMPLED = """\
import gc, time

import nvtx

linked = [[] for _ in range(1_000_000)]
with nvtx.annotate("step_0"):
    began = time.monotonic()
    while not (has_spun := time.monotonic() > began + 2): pass
    gc.collect()
"""


def mark(export, file, line, source, length=10):
    text = f"traceview:sync:{file}:{line} in f: {source} [Tensor.item]"
    start = 1_000 * line
    return export.range(text, start, start + length)


def stored(raw, folder):
    """(file, line, text) of what is stored, after it has been."""
    write_source_tables(raw, [folder])
    table = load(raw).recorded("source_lines")
    return [(row["file"], row["line"], row["text"]) for row in table.rows()]


def raw_with(tmp_path, *marks):
    export = Export().launch((0, 10), (20, 30))
    for each in marks:
        mark(export, *each)
    return export.write(tmp_path / "raw.sqlite")


def test_a_line_that_waits_is_stored_with_its_neighbours(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    raw = raw_with(tmp_path, ("train.py", 12, "line_12 = 12"), ("train.py", 1, "line_1 = 1"))

    rows = stored(raw, tmp_path)

    lines = [*range(1, 1 + AROUND + 1), *range(12 - AROUND, 12 + AROUND + 1)]
    assert sorted(rows, key=lambda row: row[1]) == [
        ("train.py", number, f"line_{number} = {number}") for number in lines
    ]


def test_indentation_stays_and_what_cannot_be_printed_goes(tmp_path):
    (tmp_path / "train.py").write_bytes(b"# coding: latin-1\r\nif x:\r\n\ty = \x22\xe9\x1b\x22\r\n")
    raw = raw_with(tmp_path, ("train.py", 2, "if x:"))

    assert [text for _, _, text in stored(raw, tmp_path)] == [
        "# coding: latin-1", "if x:", '    y = "\u00e9 "', "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="missing"),
        pytest.param(PROGRAM.replace("line_3 = 3", "other = 3"), id="changed"),
        pytest.param("line_1 = 1\n", id="shorter"),
        pytest.param(PROGRAM + "#" * written_tables.MOST_SOURCE_BYTES, id="large"),
        pytest.param("# coding: nonsense\n" + PROGRAM, id="encoding"),
    ],
)
def test_a_file_that_is_not_the_one_recorded_is_left_out(tmp_path, content):
    if content is not None:
        (tmp_path / "train.py").write_text(content)
    raw = raw_with(tmp_path, ("train.py", 3, "line_3 = 3"))

    assert stored(raw, tmp_path) == []
    assert "source_lines" not in load(raw).tables


def test_files_of_libraries_are_left_out(tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "layers.py").write_text(PROGRAM)

    assert stored(raw_with(tmp_path, ("layers.py", 3, "line_3 = 3")), folder) == []


def test_no_more_lines_than_a_bound_those_of_the_longest_waits_first(tmp_path):
    text = [f"line_{number} = {number}" for number in range(1, 2_000)]
    (tmp_path / "train.py").write_text("\n".join(text))
    places = range(10, 2_000, 10)
    raw = raw_with(tmp_path, *(("train.py", n, text[n - 1], n) for n in places))

    rows = stored(raw, tmp_path)

    assert len(rows) == MOST_LINES
    assert rows[AROUND][1] == places[-1]


@pytest.mark.programs
def test_a_recording_has_the_lines_and_scrub_removes_them(environment, tmp_path):  # noqa: F811
    (tmp_path / "run.py").write_text(SCRIPT)
    words = ("record", "--no-python-samples", "run.py")
    done = traceview(*words, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr

    table = load(tmp_path / "run.sqlite").table("source_lines")
    lines = SCRIPT.splitlines()
    assert table["line"].tolist() == list(range(4, 13))
    assert list(table.texts("text").decode()) == lines[3:12]

    report = scrub(tmp_path / "run.sqlite", tmp_path / "clean.sqlite")
    assert report.replaced["lines of source"] == len(table)
    assert "source_lines" not in load(tmp_path / "clean.sqlite").tables
    assert b"import nvtx" not in (tmp_path / "clean.sqlite").read_bytes()


@pytest.mark.programs
def test_no_line_of_the_program_is_stored_if_so_wanted(environment, tmp_path):  # noqa: F811
    (tmp_path / "run.py").write_text(SAMPLED)
    for words, stored in (((), True), (("--no-source-lines",), False)):
        out = tmp_path / f"{len(words)}.sqlite"
        words = ("record", *words, "-o", str(out), "run.py")
        done = traceview(*words, cwd=tmp_path, environment=environment)
        assert done.returncode == 0, done.stderr
        assert ("source_lines" in load(out).tables) == stored
        assert len(load(out).table("python_samples")) > 0
        for text in (b"has_spun", b"gc.collect()"):
            assert (text in out.read_bytes()) == stored

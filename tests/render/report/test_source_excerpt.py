"""The source beside a finding: the recorded lines, the one it is about marked, and no file read."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import traceview
from tests.build import Export
from tests.render.example_report import HOSTILE
from traceview.base.findings import Subject
from traceview.render.report.evidence import source_view
from traceview.traces.recorders.written_tables import write_table
from traceview.traces.trace.load import load, unpacked
from traceview.traces.trace.nsys.added_tables import EXCERPTS_TABLE

RECORDING = Path(__file__).parents[2] / "data/sync_sites.sqlite.xz"
FILE, LINE = "workloads/sync_sites.py", 33


@pytest.fixture
def plain(tmp_path):
    copy = tmp_path / "run.sqlite"
    with unpacked(RECORDING) as path:
        copy.write_bytes(path.read_bytes())
    return copy


def page(path):
    return traceview.analyze(load(path), "sync-stalls").to_html()


def add_lines(path, lines):
    rows = [{"file": FILE, "line": number, "text": text} for number, text in lines]
    write_table(path, EXCERPTS_TABLE, {"file": "TEXT", "line": "INTEGER", "text": "TEXT"}, rows)


def source_of(html):
    return html.partition('<div class="source">')[2].partition('<details class="evidence"')[0]


def test_a_finding_shows_its_line_among_its_neighbours(plain):
    texts = {number: f"    line({number})" for number in range(LINE - 6, LINE + 7)}
    add_lines(plain, texts.items())

    source = source_of(page(plain))

    shown = [number for number in texts if f"<i>{number}</i>line(" in source]
    assert shown == list(range(LINE - 4, LINE + 5))
    assert source.count('class="here"') == 1
    assert f"<i>{LINE}</i>" in source.partition('class="here"')[2].partition("</div>")[0]


def test_without_neighbours_the_line_itself_is_shown(plain):
    before = source_of(page(plain))
    add_lines(plain, [(LINE + 1, "other()")])

    assert source_of(page(plain)) == before
    assert '<div class="here"><span class="links"></span>' in before
    assert f"<i>{LINE}</i>" in before


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("line", [7, 50])
def test_no_line_is_shown_with_the_text_of_another(tmp_path, line, recorded):
    """A finding about a line of a forward pass has the row of the line that runs it backward."""
    export = Export().python_sample(10, ("/work/net.py", 50, "forward"), ("/work/a.py", 7, "train"))
    if recorded:
        export.source_line("/work/net.py", 50, "return block(x)")
    trace = export.load(tmp_path)
    subject = Subject("line", "", "/work/net.py" if line == 50 else "/work/a.py", line)

    row = {"file": "/work/a.py", "line": 7, "source": "loss.backward()"}
    view = source_view(trace, subject, row)

    expected = {7: ["loss.backward()"], 50: ["return block(x)"] if recorded else []}
    assert [each.text for each in view.code.lines] == expected[line]


def test_hostile_lines_are_text(plain):
    add_lines(plain, [(LINE, HOSTILE), (LINE + 1, "\x1b[31m\u202e"), (LINE + 2, "x" * 100_000)])

    html = page(plain)

    assert "<img src" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "x" * 201 not in html


@pytest.mark.parametrize("value", ["'a'", "NULL", "-1", "1.5", "99999999999", "x'00'"])
def test_damaged_rows_are_left_out(plain, value):
    add_lines(plain, [(LINE, "good()")])
    with closing(sqlite3.connect(plain)) as connection, connection:
        connection.execute(f"INSERT INTO {EXCERPTS_TABLE} VALUES ('{FILE}', {value}, 'bad')")
        connection.execute(f"INSERT INTO {EXCERPTS_TABLE} VALUES (NULL, 1, 'bad'), ('f', 1, x'ff')")

    assert len(load(plain).table("source_lines")) == 1

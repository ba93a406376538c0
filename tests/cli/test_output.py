"""Files are written whole or not at all; text fits the terminal."""

import gzip
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import click
import pytest

from traceview.base.errors import TraceviewError
from traceview.cli.output import (
    BLOCK_CHARACTERS,
    Asked,
    check_writable,
    print_text,
    put_json,
    write_file,
)


def test_written_with_the_usual_permissions_and_nothing_left_behind(tmp_path, capsys):
    path = tmp_path / "page.html"
    write_file(path, "héllo")
    assert path.read_text("utf-8") == "héllo"
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert list(tmp_path.iterdir()) == [path]
    assert capsys.readouterr() == ("", f"Wrote {path}\n")


def test_a_failed_write_keeps_what_was_there(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_file(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_not_replaced(tmp_path):
    (tmp_path / "real.html").write_text("old")
    link = tmp_path / "link.html"
    link.symlink_to("real.html")
    write_file(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "real.html").read_text() == "new"


def test_a_device_is_written_to_not_replaced(tmp_path):
    write_file(type(tmp_path)("/dev/null"), "text")
    assert not type(tmp_path)("/dev/null").is_file()


def test_what_is_named_gz_is_compressed(tmp_path):
    path = tmp_path / "report.json.gz"
    put_json(["[", "]"], path)
    assert gzip.decompress(path.read_bytes()) == b"[]"


def test_two_outputs_of_one_name_are_misuse(tmp_path):
    page = tmp_path / "page.html"
    with pytest.raises(click.UsageError, match="two outputs have the name"):
        check_writable([page, tmp_path / "." / "page.html"], source=tmp_path / "in", force=True)
    check_writable([Path("/dev/null"), Path("/dev/null")], source=tmp_path / "in", force=True)


def test_a_pipe_gets_80_columns_or_what_columns_says(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_text(lambda width, color: f"{width} {color}\n")
    monkeypatch.setenv("COLUMNS", "132")
    print_text(lambda width, color: f"{width} {color}\n")
    monkeypatch.setenv("COLUMNS", "wide")
    print_text(lambda width, color: f"{width} {color}\n")
    assert capsys.readouterr().out == "80 False\n132 False\n80 False\n"


def test_a_terminal_gets_colors_its_width_and_progress():
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 97))
    code = (
        "from traceview.cli.output import print_text, progress\n"
        "with progress('Reading [b]') as next_step: next_step('Thinking')\n"
        "print_text(lambda width, color: f'{width} {color}')"
    )
    environment = {**os.environ, "TERM": "xterm"}
    for name in ("COLUMNS", "NO_COLOR"):
        environment.pop(name, None)
    command = [sys.executable, "-W", "error", "-c", code]
    subprocess.run(command, stdout=child, stderr=child, env=environment, check=True)
    os.close(child)
    shown = os.read(parent, 100_000).decode()
    os.close(parent)
    assert shown.endswith("97 True")
    assert "Reading [b]" in shown or "Thinking" in shown


def test_a_text_may_come_in_pieces(tmp_path, capsys):
    write_file(tmp_path / "a.json", iter(["[1,", "2", "]"]))
    assert (tmp_path / "a.json").read_text() == "[1,2]"
    put_json(iter(["x" * BLOCK_CHARACTERS, "y", "z"]), None)
    assert capsys.readouterr().out == "x" * BLOCK_CHARACTERS + "yz"


def test_what_fails_in_the_middle_leaves_the_old_file(tmp_path):
    def pieces():
        yield "half"
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(TraceviewError, match="No space left"):
        write_file(path, pieces())
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("name", "field"), [("a.html", "html"), ("A.HTM", "html"), ("a.json", "json")]
)
def test_o_means_what_its_name_ends_in(name, field):
    outputs = Asked(output=Path(name)).outputs("stem")
    assert (getattr(outputs, field), outputs.files) == (Path(name), [Path(name)])


@pytest.mark.parametrize(("html", "name"), [("b.html", "a.html"), (None, "a.txt"), (None, "a")])
def test_o_without_a_known_ending_or_twice_is_misuse(html, name):
    with pytest.raises(click.UsageError):
        Asked(output=Path(name), html=html).outputs("stem")

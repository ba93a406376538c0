"""Excerpts of the files that compiled code names: whatever it names, they are few lines at once."""

import os
from pathlib import Path

import pytest

from traceview.kernels.inspect.kernel_report import excerpts
from traceview.kernels.ptx.model import SourceLine


def test_lines_come_with_a_few_around_them(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("".join(f"line {number}\n" for number in range(1, 21)))
    (found,) = excerpts([SourceLine(str(file), 10)])
    assert found.missing is None
    assert found.lines[0] == (7, "line 7")
    assert found.lines[-1] == (13, "line 13")


def test_a_device_without_end_and_a_pipe_without_writer_are_not_read(tmp_path):
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    for file in (Path("/dev/zero"), pipe, tmp_path):
        (found,) = excerpts([SourceLine(str(file), 1)])
        assert (found.lines, found.missing) == ((), "cannot be read: it is not a regular file")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [("one\n", 9, "has only 1 line: it changed"), (None, 1, "cannot be read: No such file")],
)
def test_what_cannot_be_shown_says_why(tmp_path, text, line, reason):
    file = tmp_path / "kernel.py"
    if text is not None:
        file.write_text(text)
    (found,) = excerpts([SourceLine(str(file), line)])
    assert found.lines == ()
    assert found.missing.startswith(reason)

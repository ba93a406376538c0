"""`traceview report --all` on a terminal: through a pager, in a real pseudo-terminal."""

import os
import shutil

import pytest

from tests.cli.terminal import CTRL_C, in_terminal
from tests.places import DATA

pytestmark = pytest.mark.programs

needs_less = pytest.mark.skipif(shutil.which("less") is None, reason="no less here")

TRACE = DATA / "mlp_sync.sqlite.xz"
ALL = ["report", str(TRACE), "--all"]
PROMPT = ":\x1b\\[K"
BOLD, LAST = "\x1b[1m", "No cuDNN events collected"


def shown(arguments, *keys, **environment):
    named = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8"}
    return in_terminal(
        arguments, keys, environment={**named, "TERM": "xterm-256color", **environment}
    )


@needs_less
@pytest.mark.parametrize("environment", [{}, {"PAGER": "less"}, {"PAGER": "less", "LESS": "-F"}])
def test_less_shows_the_first_screen_in_colors(environment):
    session = shown(ALL, (PROMPT, "q"), **environment)
    assert session.status == 0
    assert BOLD in session.raw
    assert "ESC[" not in session.text
    assert "7 steps" in session.text
    assert LAST not in session.text


@needs_less
def test_ctrl_c_leaves_less_open():
    session = shown(ALL, (PROMPT, CTRL_C), ("", "G"), (r"\(END\)", "q"))
    assert session.status == 0
    assert LAST in session.text


@pytest.mark.parametrize("pager", ["cat", "no-such-pager", "less 'unclosed"])
def test_everything_is_printed_where_no_pager_pages(pager):
    session = shown(ALL, PAGER=pager)
    assert session.status == 0
    assert BOLD in session.raw
    assert session.text.count(LAST) == 1


def test_without_a_pager_everything_is_printed():
    session = shown([*ALL, "--no-pager"], PAGER="sh -c 'echo paged'")
    assert (session.status, session.text.count(LAST)) == (0, 1)
    assert "paged" not in session.text


def test_a_pager_may_stop_reading():
    session = shown(ALL, PAGER="head -n 2")
    assert session.status == 0
    assert "7 steps" in session.text
    assert "Traceback" not in session.text
    assert LAST not in session.text


def test_ctrl_c_ends_a_pager_that_does_not_handle_it():
    session = shown(ALL, ("paging", CTRL_C), PAGER="echo paging; exec sleep 60")
    assert session.status == 130
    assert "Traceback" not in session.text


def test_one_screen_is_not_paged():
    session = shown(["report", str(TRACE)], PAGER="echo paged; cat")
    assert session.status == 0
    assert "paged" not in session.text

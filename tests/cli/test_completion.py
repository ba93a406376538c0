"""Completion by the shell: the script, and the values that it asks for."""

import os
import subprocess
import sys

import pytest

from tests.build import Export
from traceview.cli import run


def completed(*words: object) -> list[str]:
    """What bash would offer for the last word."""
    environment = {
        **os.environ,
        "_TRACEVIEW_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(map(str, ("traceview", *words))),
        "COMP_CWORD": str(len(words)),
    }
    program = "import sys; from traceview.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell, capsys):
    assert run(["completion", shell]) == 0
    assert "_TRACEVIEW_COMPLETE" in capsys.readouterr().out


def test_an_unknown_shell_is_misuse():
    assert run(["completion", "tcsh"]) == 2


def test_verbs_options_and_analyses():
    assert {"report", "record"} <= set(completed("re"))
    assert completed("report", "--expl") == ["--explain"]
    assert completed("report", "--only", "gpu") == ["gpu-idle"]
    assert completed("report", "--only", "gpu-idle,st") == ["gpu-idle,steps"]
    assert completed("report", "--explain", "score") == ["scoreboard"]


def test_ranges_of_the_trace(unpack, tmp_path):
    assert completed("report", unpack("training"), "--range", "ep") == ["epoch_*"]
    (tmp_path / "broken.sqlite").write_text("no trace")
    assert completed("report", tmp_path / "broken.sqlite", "--range", "st") == []


def test_a_name_that_the_shell_would_run_is_not_offered(tmp_path):
    export = Export().launch((10, 20), (30, 90))
    for at, name in enumerate(("z_load", "z_$(touch owned)", "z_`id`", "z_a;b", "z_'x'")):
        export.range(name, 100 * at, 100 * at + 90)
    path = export.write(tmp_path / "t.sqlite")
    assert completed("report", path, "--range", "z_") == ["z_load"]

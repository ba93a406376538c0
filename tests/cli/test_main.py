"""The command as a whole: one line for a failure, the right status, and a quick start."""

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import traceview
from tests.build import Export
from tests.places import DATA, REPOSITORY
from traceview.base.errors import OutputExistsError, TraceFormatError
from traceview.cli import VERBS, group, run
from traceview.cli.report import _import_ahead as import_ahead
from traceview.traces.recorders import Recording

COMMAND = (sys.executable, "-m", "traceview")


@pytest.fixture
def failing(monkeypatch):
    """Make every load raise."""

    def fail_with(error):
        def load(path):
            raise error

        monkeypatch.setattr(traceview, "load", load)

    return fail_with


def test_help_lists_the_verbs(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert [verb for verb in VERBS if f"\n  {verb} " in shown] == list(VERBS)


def test_help_imports_no_verb_and_nothing_slow():
    code = (
        "import sys; from traceview.cli import run; run(['--help']); "
        "print([m for m in ('numpy', 'rich', 'jinja2', 'matplotlib', 'sqlite3', 'pandas',"
        " 'traceview.cli.report') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", ["training.sqlite.xz", "no.sqlite"])
def test_a_report_does_not_search_for_garbage(name, monkeypatch):
    load, searching = traceview.load, []

    def loading(*given, **options):
        searching.append(gc.isenabled())
        return load(*given, **options)

    monkeypatch.setattr(traceview, "load", loading)
    assert gc.isenabled()
    run(["report", str(REPOSITORY / "examples" / name)])
    assert searching == [False]
    assert gc.isenabled()


UNUSED = {"matplotlib", "pandas", "torch", "triton", "nvtx", "backports.zstd"}
# numpy imports its masked arrays, which take 30 ms, for np.unique and np.quantile.
SLOW = {
    "traceview.traces.trace.kineto.reader",
    "traceview.kernels.ptx.parser",
    "traceview.kernels.inspect",
    "numpy.ma",
}


@pytest.mark.parametrize(
    ("options", "unused"),
    [
        ([], {"jinja2", "msgspec"}),
        (["--json"], {"jinja2", "rich"}),
        (["--html", "page.html"], {"msgspec"}),
    ],
    ids=["text", "JSON", "HTML"],
)
def test_a_report_imports_only_what_it_uses(options, unused, tmp_path):
    """The trace has no code of kernels, and is none of torch.profiler."""
    recording = REPOSITORY / "examples" / "training.sqlite.xz"
    code = (
        "import sys; from traceview.cli import run; "
        f"assert run(['report', {str(recording)!r}, *{options!r}]) == 0; "
        f"print([m for m in {sorted(UNUSED | SLOW | unused)!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", VERBS)
def test_help_describes_each_option_once(verb, capsys):
    assert run([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    command = group.get_command(click.Context(group), verb)
    options = [
        each for each in command.params if isinstance(each, click.Option) and not each.hidden
    ]
    assert options
    for option in options:
        assert option.help, option.name
        first = option.opts[0]
        end = r"[ \n]" if first.startswith("--") else ", --"
        assert len(re.findall(rf"^  {first}{end}", shown, re.MULTILINE)) == 1, option.name


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("ptx", "help")])
def test_help_ends_with_two_or_three_examples(verb, capsys):
    run([verb, "--help"])
    examples = capsys.readouterr().out.rpartition("\nExamples:\n")[2].splitlines()
    assert len(examples) in (2, 3)
    assert all(line.startswith(f"  traceview {verb}") for line in examples)


def test_version_is_that_of_the_project(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"traceview {traceview.__version__}\n"


def test_an_error_is_one_line_without_a_traceback(failing, capsys):
    failing(TraceFormatError("x.sqlite is not\na trace \x1b[31m", "record one"))
    assert run(["report", "x.sqlite"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (r"traceview: error: x.sqlite is not\na trace \x1b[31m; record one" + "\n")


@pytest.mark.parametrize("arguments", [["--debug", "report", "x"], ["report", "x", "--debug"]])
def test_debug_shows_the_traceback(failing, capsys, arguments):
    failing(TraceFormatError("no trace"))
    assert run(arguments) == 1
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert shown.endswith("traceview: error: no trace\n")


def test_a_bug_is_called_a_bug(failing, capsys):
    failing(KeyError("stream"))
    assert run(["report", "x"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("traceview: internal error: KeyError: 'stream'; please report it")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("said", ["", "Unable to allocate 8.00 GiB for an array"])
def test_too_little_memory_is_no_bug(failing, capsys, said):
    failing(MemoryError(said))
    assert run(["report", "x"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("traceview: error: out of memory (")
    assert said in shown
    assert shown.count("\n") == 1


def test_a_failure_of_the_system_is_no_bug(failing, capsys):
    failing(PermissionError(13, "Permission denied", "x.sqlite"))
    assert run(["report", "x"]) == 1
    shown = capsys.readouterr().err
    assert shown == "traceview: error: [Errno 13] Permission denied: 'x.sqlite'\n"


def test_an_interrupt_is_quiet(failing, capsys):
    failing(KeyboardInterrupt())
    assert run(["report", "x"]) == 130
    assert capsys.readouterr().err.strip() == ""


def test_an_interrupt_while_the_command_loads_is_quiet(tmp_path):
    click = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "click.py").write_text(click)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(COMMAND, capture_output=True, env=os.environ | {"PYTHONPATH": path})
    assert ended.returncode == 130
    assert ended.stderr == b""


def test_imports_that_an_interrupt_leaves_too_late_are_quiet(monkeypatch):
    def too_late(_: str) -> None:
        raise RuntimeError("can't register atexit after shutdown")

    monkeypatch.setattr("traceview.cli.report.import_module", too_late)
    import_ahead(lambda: None)


@pytest.mark.parametrize("arguments", [["repot"], ["report", "x", "--nosuch"], ["report"]])
def test_misuse_is_status_2(arguments, capsys):
    assert run(arguments) == 2
    assert "Usage: traceview" in capsys.readouterr().err


def test_the_error_tree_reaches_the_user(failing, capsys, tmp_path):
    failing(OutputExistsError(tmp_path))
    assert run(["report", "x"]) == 1
    assert "pass --force" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_failure_to_speak_of():
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as gone:
        done = subprocess.run(
            [*COMMAND, "--help"], stdout=gone, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr == ""
    assert done.returncode == 1


def closed(*arguments, stderr=subprocess.PIPE):
    """The command with stdout closed, as `>&-` has it."""
    line = 'exec "$@" >&-'
    return subprocess.run(
        ["/bin/sh", "-c", line, "sh", *COMMAND, *map(str, arguments)], stderr=stderr, text=True
    )


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_is_printed_to_a_closed_stdout_is_a_failure(tmp_path, options):
    path = Export().launch(call=(0, 2), kernel=(8, 20)).load(tmp_path).path
    done = closed("report", path, *options)
    assert done.returncode == 1
    assert done.stderr == (
        "traceview: error: stdout is closed, so the output was lost; run it with stdout open\n"
    )


def test_files_are_written_though_stdout_is_closed(tmp_path):
    path = Export().launch(call=(0, 2), kernel=(8, 20)).load(tmp_path).path
    page = tmp_path / "a.html"
    done = closed("report", path, "--html", page)
    assert done.returncode == 1
    assert page.read_text().startswith("<!doctype html>")


def test_a_python_without_streams_is_left_as_it_was(monkeypatch):
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, None)
    assert (run(["--version"]), run(["nosuch"])) == (1, 2)
    assert (sys.stdout, sys.stderr) == (None, None)


def test_where_nothing_is_printed_nothing_is_lost(monkeypatch, failing):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr("traceview.cli.report_outputs.print_text", lambda draw, **_: None)
    monkeypatch.setattr("traceview.cli.report._analyzed", lambda *_, **__: None)
    assert run(["report", "x"]) == 0


@pytest.mark.parametrize("status", [0, 3])
def test_a_recording_keeps_the_status_of_its_script_though_stdout_is_closed(
    monkeypatch, capsys, status
):
    done = Recording(Path("train.sqlite"), status)
    monkeypatch.setattr("traceview.traces.recorders.record", lambda *_, **__: done)
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["record", "train.py"]) == status
    said = capsys.readouterr().err
    assert said.endswith("traceview: no summary: stdout is closed\nWrote train.sqlite\n")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("reprot", "No such command 'reprot'. Did you mean 'report'?"),
        ("train.py", "'train.py' is a script. To record it: traceview record train.py"),
        ("xyzzy", "No such command 'xyzzy'.\n"),
    ],
)
def test_a_word_that_is_no_command_is_taken_for_what_it_most_likely_means(
    word, hint, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run([word]) == 2
    assert hint in capsys.readouterr().err


def test_a_recording_alone_is_reported_on(tmp_path, monkeypatch, capsys):
    recording = DATA / "training.sqlite.xz"
    monkeypatch.chdir(tmp_path)
    assert run([str(recording)]) == run(["report", str(recording)]) == 0
    shown = capsys.readouterr().out
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]
    (tmp_path / "run").touch()
    for word in ("missing.sqlite", "missing.nsys-rep.zst", "run"):
        assert run([word, "--html"]) == 1
        assert f"cannot read {word}: " in capsys.readouterr().err


@pytest.mark.parametrize("verb", [None, *VERBS])
def test_help_of_a_verb_is_what_it_prints_itself(verb, capsys):
    words = [verb] if verb else []
    assert run(["help", *words]) == run([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]


@pytest.mark.parametrize(
    "words",
    [
        ["scrub", "a.sqlite", "-"],
        ["scrub", "a.sqlite", "-o", "-"],
        ["baseline", "a.sqlite", "-o", "-"],
        ["export", "a.sqlite", "-o", "-"],
        ["convert", "a.sqlite", "-"],
        ["schema", "report", "-o", "-"],
        ["record", "-o", "-", "a.py"],
        ["report", "a.sqlite", "--html", "-"],
    ],
)
def test_a_file_that_cannot_be_stdout_is_misuse(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    assert "does not go to stdout: name a file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

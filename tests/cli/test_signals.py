"""A signal ends any verb in order: the right status, and nothing left beside the output."""

import signal
import subprocess
import sys

import pytest

from tests.trace.kineto.traces import training, write
from traceview.base.errors import TraceviewError
from traceview.base.outputs import write_folder

# Sends the signal at the Nth call of a function that the verb reaches: no clock decides.
SENDER = """
import os, signal, sys
number, at = int(sys.argv[1]), int(sys.argv[2])
seen = 0
def hook(event, arguments):
    global seen
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        if (".part" in os.fsdecode(arguments[0]) or ".traceview-" in os.fsdecode(arguments[0])):
            tell()
    elif event in ("sqlite3.connect", "os.mkdir", "os.rename", "tempfile.mkdtemp"):
        tell()
def tell():
    global seen
    seen += 1
    if seen == at:
        os.kill(os.getpid(), number)
sys.argv = ["traceview", *sys.argv[3:]]
from traceview.__main__ import main
sys.addaudithook(hook)
main()
"""
VERBS = {
    "scrub": ("scrub", "in.json", "out.sqlite"),
    "convert": ("convert", "in.json", "out.sqlite"),
    "export": ("export", "in.json", "--perfetto", "out.pftrace"),
    "html": ("report", "in.json", "--html", "out.html"),
    "json": ("report", "in.json", "--json", "out.json"),
    "csv": ("report", "in.json", "--csv", "tables"),
}


def ended(folder, number, at, words):
    command = [sys.executable, "-c", SENDER, str(number.value), str(at), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("verb", VERBS)
def test_a_signal_leaves_nothing_half_done(verb, number, tmp_path):
    write(tmp_path / "in.json", training())
    words, out = VERBS[verb], VERBS[verb][-1]
    interrupted = 0
    for at in range(1, 9):
        done = ended(tmp_path, number, at, words)
        assert "Traceback" not in done.stderr
        left = {path.name for path in tmp_path.iterdir()} - {"in.json"}
        if done.returncode == 0:
            assert left == {out}
            break
        assert done.returncode == 128 + number, done.stderr
        # The signal may come right after the output was put in place.
        assert left <= {out}, left
        interrupted += 1
        for name in left:
            path = tmp_path / name
            [each.unlink() for each in path.iterdir()] if path.is_dir() else path.unlink()
            if path.is_dir():
                path.rmdir()
    assert interrupted


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("module", ["click", "traceview.cli"])
def test_a_signal_while_modules_load_is_quiet(module, number, tmp_path):
    sender = (
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), {number.value})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from traceview.__main__ import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", sender], capture_output=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (128 + number, b"")


def test_an_ignored_signal_stays_ignored(tmp_path):
    write(tmp_path / "in.json", training())
    ignoring = SENDER.replace("sys.argv = [", "signal.signal(number, signal.SIG_IGN)\nsys.argv = [")
    words = [str(signal.SIGHUP.value), "1", *VERBS["convert"]]
    done = subprocess.run([sys.executable, "-c", ignoring, *words], cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "out.sqlite").is_file()


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_of_tables_is_written_as_a_whole_or_not_at_all(there, tmp_path):
    folder = tmp_path / "tables"
    if there:
        folder.mkdir()
        (folder / "old.csv").write_text("old")

    def pieces():
        yield b"a"
        raise OSError(28, "No space left on device")

    with pytest.raises(TraceviewError, match=r"cannot write .*/tables/b\.csv: No space left"):
        write_folder(folder, [("a.csv", [b"x"]), ("b.csv", pieces())])
    assert sorted(path.name for path in tmp_path.rglob("*")) == (
        ["old.csv", "tables"] if there else []
    )
    assert write_folder(folder, [("a.csv", [b"x"]), ("b.csv", [b"y"])]) == 2
    assert {path.name for path in folder.iterdir()} == {"a.csv", "b.csv"} | (
        {"old.csv"} if there else set()
    )

"""Programs that change files in every way: the user's folder stays as it was."""

import json
import sys
from pathlib import Path

import pytest

from traceview.trials.tryout import scratch
from traceview.trials.tryout.runs import Program, Runs
from traceview.trials.tryout.scratch import is_within, mirror

WAYS = {
    "append": "open('a.txt', 'a').write('more')",
    "by __file__": "(ROOT / 'b.txt').write_text('other')",
    "descriptor": "os.write(os.open('c.txt', os.O_WRONLY | os.O_TRUNC), b'other')",
    "bytes path": "open(b'd.txt', 'r+').write('x')",
    "truncate": "os.truncate('e.txt', 0)",
    "touch": "pathlib.Path('f.txt').touch()",
    "chmod": "os.chmod('g.txt', 0o600)",
    "remove": "os.remove('h.txt')",
    "replace": "os.replace('i.txt', 'j.txt'); open('j.txt', 'a').write('x')",
    "hard link": "os.link('k.txt', 'l.txt'); open('l.txt', 'w').write('x')",
    "database": "sqlite3.connect('m.db').execute('create table t (x)')",
    "whole folder": "open('.git/config', 'a').write('x'); assert open('.git/HEAD').read()",
    "new in whole folder": "os.makedirs('.git/objects/new'); open('.git/objects/new/o', 'w')",
    "folder elsewhere": "open('link/n.txt', 'w').write('x')",
    "remove folder": "shutil.rmtree('sub')",
    "new": "open('new.txt', 'x').write('x'); open('new.txt').read()[0]",
    "native, new": "assert libc.fopen(b'native.txt', b'w')",
    "temporary": "tempfile.NamedTemporaryFile().write(b'x')",
    "beside": "open(BESIDE + '/o.txt', 'w')",
}
FORBIDDEN = {
    "native": "assert libc.fopen(b'p.txt', b'w')",
    "child": "assert not subprocess.call([sys.executable, '-c', 'open(\"p.txt\", \"w\")'])",
    "absolute": "open(USERS + '/p.txt', 'w')",
    "absolute, new": "open(USERS + '/new.txt', 'w')",
    "absolute, removed": "os.remove(USERS + '/p.txt')",
    "moved": "os.replace(USERS + '/p.txt', 'p.txt')",
}
PROGRAM = """
import ctypes, json, os, pathlib, shutil, sqlite3, subprocess, sys, tempfile
ROOT = pathlib.Path(__file__).resolve().parent
USERS, BESIDE, ways = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
libc, failed = ctypes.CDLL(None), {}
for name, way in ways.items():
    try:
        exec(way)
    except Exception as error:
        failed[name] = type(error).__name__
open("failed.json", "w").write(json.dumps(failed))
"""


def state_of(folder):
    return {
        path: (path.lstat().st_mode, path.lstat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is of Linux")
def test_a_program_changes_copies_and_nothing_changes_the_user_s_files(tmp_path, monkeypatch):
    users, beside, elsewhere = (tmp_path / name for name in ("users", "beside", "elsewhere"))
    for folder in (users / "sub", users / ".git" / "objects", beside, elsewhere):
        folder.mkdir(parents=True)
    files = [f"{letter}.txt" for letter in "abcdefghikp"] + ["sub/x.txt", ".git/config"]
    for name in (*files, ".git/HEAD"):
        (users / name).write_text("mine")
    (elsewhere / "n.txt").write_text("mine")
    (users / "link").symlink_to(elsewhere)
    (users / "train.py").write_text(PROGRAM)
    before = state_of(users), state_of(elsewhere)
    monkeypatch.chdir(users)
    ways = json.dumps({**WAYS, **FORBIDDEN})
    runs = Runs(Program.of(["train.py", str(users), str(beside), ways]), tmp_path / "work")
    spec = runs.spec()
    result = runs.run(spec, 60)
    assert result.error == ""
    failed = json.loads((Path(spec.scratch) / "failed.json").read_text())
    if not result.is_protected:
        pytest.skip("this system has no Landlock")
    assert (state_of(users), state_of(elsewhere)) == before
    assert failed.keys() == FORBIDDEN.keys()
    assert result.outside == (f"wrote {beside}/o.txt",)
    own = Path(spec.scratch)
    assert (own / "a.txt").read_text() == "minemore"
    assert (own / ".git" / "config").read_text() == "minex"
    assert not (own / "h.txt").exists()
    assert (own / "link" / "n.txt").read_text() == "x"


def test_folders_beyond_the_first_entries_are_copied_as_they_are_written_to(tmp_path, monkeypatch):
    users, copy = tmp_path / "users", tmp_path / "copy"
    (users / "a" / "b" / "c").mkdir(parents=True)
    (users / "a" / "b" / "c" / "x.txt").write_text("mine")
    (users / "a" / "y.txt").write_text("mine")
    copy.mkdir()
    monkeypatch.setattr(scratch, "MOST_ENTRIES", 1)
    mirror(users, copy)
    assert (copy / "a").is_symlink()
    scratch.own(str(copy), str(copy / "a" / "b" / "c" / "x.txt"))
    (copy / "a" / "b" / "c" / "x.txt").write_text("other")
    assert (users / "a" / "b" / "c" / "x.txt").read_text() == "mine"
    assert (copy / "a" / "y.txt").is_symlink()
    assert not (copy / "a" / "b" / "c").is_symlink()


@pytest.mark.parametrize(
    ("path", "folder", "inside"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/a/b", "/", True),
        ("/ab", "/a", False),
        ("/tmpx/y", "/tmp", False),
    ],
)
def test_a_folder_is_not_one_whose_name_it_begins(path, folder, inside):
    assert is_within(path, folder) is inside


def test_a_module_runs_in_the_scratch_folder_as_python_m_does(tmp_path, monkeypatch):
    package = tmp_path / "users" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("NAME = __file__")
    text = "import sys\nfrom .other import NAME\n"
    text += "open('told.txt', 'w').write(f'{NAME} {sys.argv} {__spec__.name} {__name__}')"
    (package / "train.py").write_text(text)
    monkeypatch.chdir(tmp_path / "users")
    runs = Runs(Program.of(["-m", "package.train", "--x"]), tmp_path / "work")
    spec = runs.spec()
    assert runs.run(spec, 60).error == ""
    own = Path(spec.scratch)
    name, train = own / "package" / "other.py", own / "package" / "train.py"
    told = f"{name} {[str(train), '--x']} package.train __main__"
    assert (own / "told.txt").read_text() == told
    assert [each.name for each in (tmp_path / "users").iterdir()] == ["package"]

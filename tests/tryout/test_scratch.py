"""Programs that change files in every way: the user's folder stays as it was."""

import json
import os
import subprocess
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
    "beside, removed": "os.remove(BESIDE + '/gone.txt')",
    "beside, not there": "os.path.exists(BESIDE) and os.makedirs(BESIDE, exist_ok=True)",
    "remove folder elsewhere": "shutil.rmtree('link/tree')",
    "remove in whole folder": "shutil.rmtree(pathlib.Path('.git/objects'))",
    "new elsewhere": "open('link/new.txt', 'x').write('x')",
    "entered": "os.chdir('link/sub'); open('log.txt', 'w').write('x'); os.chdir(ROOT)",
    "descriptor of folder": "os.remove('x.txt', dir_fd=os.open('link/sub', os.O_RDONLY))",
    "up from a link": "open('link/../up.txt', 'w')",
    "link to nothing": "open('broken.txt', 'w').write('x')",
    "link of its own": "os.symlink('own', 'last'); os.mkdir('own'); open('last/f', 'w').close(); "
    "assert os.path.exists('own/f')",
}
NATIVE = {
    "native": "assert libc.fopen(b'p.txt', b'w')",
    "child": "assert not subprocess.call([sys.executable, '-c', 'open(\"p.txt\", \"w\")'])",
    "shell, elsewhere": "assert not subprocess.call(['sh', '-c', 'echo x > link/deep/z.txt'])",
    "shell, file elsewhere": "assert not subprocess.call(['sh', '-c', 'echo x > file.txt'])",
}
FORBIDDEN = {
    "absolute": "open(USERS + '/p.txt', 'w')",
    "absolute, new": "open(USERS + '/new.txt', 'w')",
    "absolute, removed": "os.remove(USERS + '/p.txt')",
    "moved": "os.replace(USERS + '/p.txt', 'p.txt')",
    "mode by descriptor": "os.chmod(os.open(USERS + '/p.txt', os.O_RDONLY), 0o600)",
    "linked, absolute": "os.chmod(os.path.dirname(USERS) + '/elsewhere/n.txt', 0o600)",
    "beside, by descriptor": "os.remove('o.txt', dir_fd=os.open(BESIDE, os.O_RDONLY))",
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


WATCHED = """
import os, runpy, sys
from pathlib import Path
from traceview.trials.tryout import scratch
users, copy = map(Path, sys.argv[4:])
scratch.MOST_ENTRIES = 0
kept = (str(users), *scratch.mirror(users, copy))
sys.addaudithook(scratch.WriteWatch(str(copy), kept, print))
os.chdir(copy)
runpy.run_path(str(copy / "train.py"))
"""


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The user's folder, one beside it, and one that its links lead to."""
    users, beside, elsewhere = (tmp_path / name for name in ("users", "beside", "elsewhere"))
    for folder in (users / "sub", users / ".git" / "objects", beside, elsewhere):
        folder.mkdir(parents=True)
    files = [f"{letter}.txt" for letter in "abcdefghikp"] + ["sub/x.txt", ".git/config"]
    for name in (*files, ".git/HEAD", ".git/objects/o"):
        (users / name).write_text("mine")
    (beside / "gone.txt").write_text("")
    for name in ("n.txt", "file.txt", "tree/a.txt", "tree/b/c.txt", "deep/z.txt"):
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_text("mine")
    (elsewhere / "sub").mkdir()
    for name in ("log.txt", "x.txt"):
        (elsewhere / "sub" / name).write_text("mine")
    (users / "link").symlink_to(elsewhere)
    (users / "file.txt").symlink_to(elsewhere / "file.txt")
    (users / "broken.txt").symlink_to(elsewhere / "none.txt")
    (users / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(users)
    return users, beside, elsewhere


def test_without_landlock_python_changes_copies_of_folders_that_are_links(folders, tmp_path):
    users, beside, _ = folders
    before = state_of(tmp_path)
    copy = tmp_path / "work" / "copy"
    copy.mkdir(parents=True)
    ways = json.dumps({**WAYS, **FORBIDDEN})
    command = [sys.executable, "-c", WATCHED, str(users), str(beside), ways, str(users), str(copy)]
    own = {**os.environ, "TMPDIR": str(copy.parent)}
    run = subprocess.run(command, text=True, capture_output=True, check=False, env=own)
    assert run.stderr == ""
    assert run.stdout == f"wrote {beside}/o.txt\nchanged {beside}/gone.txt\n"
    assert json.loads((copy / "failed.json").read_text()).keys() == FORBIDDEN.keys()
    after = {path: state for path, state in state_of(tmp_path).items() if copy not in path.parents}
    assert after.keys() ^ before.keys() == {beside / "o.txt", beside / "gone.txt"}
    assert all(after[path] == before[path] for path in after.keys() & before.keys())
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is of Linux")
def test_a_program_changes_copies_and_nothing_changes_the_user_s_files(folders, tmp_path):
    users, beside, elsewhere = folders
    before = state_of(users), state_of(elsewhere)
    ways = json.dumps({**WAYS, **NATIVE, **FORBIDDEN})
    runs = Runs(Program.of(["train.py", str(users), str(beside), ways]), tmp_path / "work")
    spec = runs.spec()
    result = runs.run(spec, 60)
    assert result.error == ""
    failed = json.loads((Path(spec.scratch) / "failed.json").read_text())
    if not result.is_protected:
        pytest.skip("this system has no Landlock")
    assert (state_of(users), state_of(elsewhere)) == before
    assert failed.keys() == {**NATIVE, **FORBIDDEN}.keys()
    assert result.outside == (f"wrote {beside}/o.txt", f"changed {beside}/gone.txt")
    own = Path(spec.scratch)
    assert (own / "a.txt").read_text() == "minemore"
    assert (own / ".git" / "config").read_text() == "minex"
    assert not (own / "h.txt").exists()
    assert (own / "link" / "n.txt").read_text() == "x"
    assert not (own / "link" / "tree").exists()
    assert (own / "link" / "sub" / "log.txt").read_text() == "x"


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

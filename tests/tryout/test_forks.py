"""The process that forks: each run has its imports, its own output and its own end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from traceview.trials.tryout.forks import Forks
from traceview.trials.tryout.runs import Program, Runs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")
SCRIPT = """
import os, sys, time
if sys.argv[1] == "waits":
    print("begun", flush=True)
    time.sleep(600)
print(sys.argv[1], "decimal" in sys.modules, os.environ.get("TWO"), sys.path[0])
os.environ["TWO"] = "changed"
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def forks(tmp_path):
    made = []

    def start(*modules, **environment):
        path = tmp_path / "modules.json"
        path.write_text(json.dumps(modules))
        made.append(Forks(path, {**os.environ, **environment}))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_each_fork_is_a_fresh_run_with_the_imports(forks, tmp_path):
    server, script = forks("decimal", "no_such_module", TWO="2"), tmp_path / "script.py"
    script.write_text(SCRIPT)
    for number in (0, 3):
        with (tmp_path / "out").open("wb") as output:
            fork = server.start([str(script), f"run {number}", str(number)], output)
        assert fork.wait(60) == number
        told = (tmp_path / "out").read_text()
        assert told.startswith(f"run {number} True 2 ")
    with (tmp_path / "out").open("wb") as output:
        fork = server.start([str(script), "waits", "0"], output)
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.01)
    os.killpg(fork.pid, signal.SIGKILL)
    assert fork.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    "text",
    ["import threading, time\nthreading.Thread(target=time.sleep, args=[99], daemon=True).start()",
     "import sys\nsys.exit(1)"],
)  # fmt: skip
def test_it_does_not_fork_where_a_fork_would_lack_something(forks, tmp_path, text):
    (tmp_path / "library.py").write_text(text)
    with (tmp_path / "out").open("wb") as output, pytest.raises(OSError, match="fork"):
        forks("library", PYTHONPATH=str(tmp_path)).start(["script.py"], output)


@pytest.mark.parametrize(
    "first",
    [
        "import own",
        "import os; os.environ.setdefault('A', '1')",
        "import os; os.environ.pop('HOME')",
        "import os; from unittest import mock; mock.patch.dict(os.environ, {'A': '1'}).start()",
    ],
)
def test_libraries_are_imported_before_unless_the_program_set_the_environment_first(
    tmp_path, monkeypatch, first
):
    users = tmp_path / "user"
    users.mkdir()
    (users / "own.py").touch()
    (users / "train.py").write_text(f"{first}\nimport xmlrpc.client\n")
    monkeypatch.chdir(users)
    runs = Runs(Program.of(["train.py"]), Path(tmp_path / "work"))
    modules = runs.run(runs.spec(), 60).modules
    expected = {"json"} if "environ" in first else {"json", "xmlrpc.client"}
    assert {"json", "own", "xmlrpc.client"} & {*modules} == expected

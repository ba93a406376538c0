"""Worker processes: every item is answered, whatever becomes of the process it ran in."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ranks.execution import tasks
from traceview.base.memory import Free
from traceview.traces.ranks.execution.processes import ProcessPool, WorkerProcess
from traceview.traces.ranks.execution.task import TaskFailure
from traceview.traces.ranks.execution.worker import holds_too_much

ROOT = Path(__file__).parents[3]


def outcomes(function, items, jobs=2, notes=None):
    note = (lambda _: None) if notes is None else notes.append
    return dict(ProcessPool(jobs, note).outcomes(function, items))


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path_factory, monkeypatch):
    """Neither a process nor a temporary folder."""
    folder = tmp_path_factory.mktemp("left")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    assert list(folder.iterdir()) == []


def test_every_item_has_its_value():
    assert outcomes(tasks.square, range(20)) == {n: n * n for n in range(20)}


def test_no_items_start_nothing(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    assert outcomes(tasks.square, []) == {}


def test_processes_serve_many_items():
    assert len(set(outcomes(tasks.process_of, range(12)).values())) == 2
    assert len(set(outcomes(tasks.process_of, range(3), jobs=1).values())) == 1


def test_one_that_fails_says_why_and_the_others_answer():
    found = outcomes(tasks.picky, range(5))
    assert (found[0], found[4]) == (0, 4)
    assert found[1] == TaskFailure("one is refused", "pass another")
    assert "ZeroDivisionError: by two" in found[2].what
    assert "out of memory" in found[3].what


def test_a_value_that_cannot_be_sent_is_told():
    assert "internal error" in outcomes(tasks.unpicklable, [0])[0].what


def test_what_a_task_prints_disturbs_nothing(capfd):
    assert outcomes(tasks.chatty, range(4)) == {n: n for n in range(4)}
    assert capfd.readouterr() == ("", "")


def files(folder, *wishes):
    paths = [folder / f"{n}.txt" for n in range(len(wishes))]
    for path, wish in zip(paths, wishes, strict=True):
        path.write_text(wish)
    return paths


def test_an_item_whose_process_is_killed_is_tried_once_more(tmp_path):
    notes = []
    found = outcomes(tasks.killed, files(tmp_path, "fine", "once", "fine", "fine"), notes=notes)
    assert found == {n: f"{n}.txt" for n in range(4)}
    assert len(notes) == 1
    assert "1.txt: its process was killed by SIGKILL" in notes[0]


def test_one_that_is_always_killed_fails_alone(tmp_path):
    found = outcomes(tasks.killed, files(tmp_path, "always", "fine", "always", "fine", "fine"))
    assert {n: value for n, value in found.items() if n not in (0, 2)} == {
        n: f"{n}.txt" for n in (1, 3, 4)
    }
    for n in (0, 2):
        assert found[n].crashed
        assert "memory" in found[n].what
        assert "--jobs 1" in found[n].remedy


def test_a_segmentation_fault_is_named_with_the_last_words():
    found = outcomes(tasks.segfault, range(4))
    assert [found[n] for n in (1, 2, 3)] == [1, 2, 3]
    assert found[0].what == "its process was killed by SIGSEGV (about to read address 0)"


def test_a_process_gives_memory_back_where_little_is_left():
    free = Free(10**9, "on this machine")
    assert not holds_too_much(4 * 10**8, free)
    assert holds_too_much(6 * 10**8, free)
    assert not holds_too_much(6 * 10**8, None)


def test_a_process_that_ends_after_a_task_is_replaced(monkeypatch):
    whole = WorkerProcess.answer
    monkeypatch.setattr(WorkerProcess, "answer", lambda worker: (whole(worker)[0], True))
    assert len(set(outcomes(tasks.process_of, range(4)).values())) == 4


def test_a_script_that_does_not_guard_its_main_program_works(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.ranks.execution.tasks import square\n"
        "from traceview.traces.ranks.execution.processes import ProcessPool\n"
        "print(sorted(ProcessPool(2).outcomes(square, [1, 2, 3])))\n"
    )
    ran = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (ran.stdout, ran.stderr) == ("[(0, 1), (1, 4), (2, 9)]\n", "")


def test_files_beside_the_user_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "queue.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    assert outcomes(tasks.square, [3]) == {0: 9}


WAITING = """
import sys
from pathlib import Path
from tests.ranks.execution.tasks import waits_with_children
from traceview.traces.ranks.execution.processes import ProcessPool, WorkerProcess
from traceview.traces.ranks.execution.worker import holds_too_much
from traceview.base.memory import Free
folder = Path(sys.argv[1])
list(ProcessPool(2).outcomes(waits_with_children, [folder, folder]))
"""


def wait_until(condition, limit_s=120):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_whoever_asked(tmp_path, number):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    asking = subprocess.Popen(
        [sys.executable, "-c", WAITING, tmp_path], env=environment, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: len(list(tmp_path.glob("*.ready"))) == 2)
    words = [each.read_text().split(" ", 2) for each in tmp_path.glob("*.ready")]
    processes = [int(word) for line in words for word in line[:2]]
    folders = [Path(line[2]) for line in words]
    assert all(map(tasks.is_running, processes))
    asking.send_signal(number)
    asking.wait()
    # Each would run for ten minutes.
    wait_until(lambda: not any(map(tasks.is_running, processes)))
    assert not any(folder.exists() for folder in folders)

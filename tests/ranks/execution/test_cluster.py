"""Tasks on Dask: the workers of this machine, and those of a scheduler that runs already."""

import json
import os
import signal
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest

from tests.ranks.execution import tasks
from traceview.base.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.traces.ranks.execution import cluster
from traceview.traces.ranks.execution.cluster import connected_client
from traceview.traces.ranks.execution.task import RankFile

pytestmark = [
    pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed"),
    # Sockets of a cluster whose workers were killed are closed by the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def running():
    """A cluster of two workers that is there already, as a user's would be: starting one takes
    longer than most of what it does."""
    import distributed

    # It leaves settings of its workers in this process.
    with mock.patch.dict(os.environ):
        made = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        )
        yield made
        made.close()


def outcomes(scheduler, function, items, workers=2):
    notes = []
    with connected_client(scheduler, workers, notes.append) as dask:
        return dict(dask.outcomes(function, items)), notes


def test_every_item_has_its_value_and_failures_say_why(running):
    found, notes = outcomes(running.scheduler_address, tasks.picky, range(6))
    assert [found[n] for n in (0, 4, 5)] == [0, 4, 5]
    assert (found[1].what, found[1].remedy) == ("one is refused", "pass another")
    assert "ZeroDivisionError" in found[2].what
    assert notes == []


def test_a_scheduler_file_is_taken(running, tmp_path):
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"type": "Scheduler", "address": running.scheduler_address}))
    assert outcomes(str(path), tasks.square, [3])[0] == {0: 9}


def test_files_are_listed_and_read_by_the_workers(running, tmp_path):
    for name in ("rank0.sqlite", "rank1.sqlite"):
        (tmp_path / name).write_bytes(b"x")
    with connected_client(running.scheduler_address, 2, print) as dask:
        files = dask.files([str(tmp_path)])
        assert [Path(file.path).name for file in files] == ["rank0.sqlite", "rank1.sqlite"]
        (worker, _) = running.scheduler_info["workers"]
        there = [RankFile(file.path, workers=(worker,)) for file in files]
        assert len(set(dict(dask.outcomes(tasks.process_of, there)).values())) == 1


def killing(folder):
    """Kill the worker that has begun with the file, once it says so."""
    ready = folder / "began"
    while not ready.exists():
        time.sleep(0.01)
    os.kill(int(ready.read_text()), signal.SIGKILL)


def test_a_worker_killed_midway_is_told_and_its_item_read_elsewhere(running, tmp_path):
    killer = threading.Thread(target=killing, args=(tmp_path,))
    killer.start()
    items = [tmp_path / f"{n}" for n in range(5)]
    found, notes = outcomes(running.scheduler_address, tasks.hangs_first, items)
    killer.join()
    assert found == {n: str(n) for n in range(5)}
    (note,) = notes
    assert "was lost while it had" in note
    assert str(items[0]) in note


@pytest.mark.programs
def test_a_local_cluster_reads_again_what_a_killed_worker_had(tmp_path):
    for n, wish in enumerate(("fine", "once", "always", "fine", "fine")):
        (tmp_path / f"{n}.txt").write_text(wish)
    items = [tmp_path / f"{n}.txt" for n in range(5)]
    found, notes = outcomes("local:2", tasks.killed, items)
    assert [found[n] for n in (0, 1, 3, 4)] == [f"{n}.txt" for n in (0, 1, 3, 4)]
    assert found[2].crashed
    assert "left the cluster" in found[2].what
    assert {"1.txt", "2.txt"} <= {Path(note.partition(":")[0]).name for note in notes}


def test_a_local_cluster_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    environment = dict(os.environ)
    with connected_client("local", 2, print) as dask:
        processes = dict(dask.outcomes(tasks.process_of, range(4))).values()
        assert os.getpid() not in processes
    end = time.monotonic() + 5
    while time.monotonic() < end and any(map(tasks.is_running, processes)):
        time.sleep(0.02)
    assert not any(map(tasks.is_running, processes))
    assert list(tmp_path.iterdir()) == []
    assert dict(os.environ) == environment


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT_S", "200ms")
    with pytest.raises(TraceviewError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        outcomes("tcp://127.0.0.1:9", tasks.square, [1])


@pytest.mark.parametrize("scheduler", ["local:", "local:0", "local:two"])
def test_a_bad_number_of_workers_is_refused(scheduler):
    with pytest.raises(InputError, match="such as local:4"):
        outcomes(scheduler, tasks.square, [1])


def test_another_traceview_on_the_workers_is_refused(running, monkeypatch):
    monkeypatch.setattr(cluster, "__version__", "99.0")
    with pytest.raises(TraceviewError, match=r"and this is 99\.0"):
        outcomes(running.scheduler_address, tasks.square, [1])


def test_without_dask_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ToolNotFoundError, match=r"pip install 'traceview\[dask\]'"):
        outcomes("local", tasks.square, [1])

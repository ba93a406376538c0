"""How often the sampler inside a program samples, by what its samples cost."""

import gc
import itertools
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

from traceview.traces.recorders.injected.traceview_injected import python_sampler, stack_dumps
from traceview.traces.recorders.injected.traceview_injected.python_sampler import PERIOD_S, Sampler
from traceview.traces.recorders.options import gathered_notes
from traceview.traces.trace import model


@pytest.fixture
def pauses(monkeypatch, tmp_path):
    """Seconds between the samples whose CPU times are given."""

    def run(*costs_s):
        sampler, slept = Sampler(str(tmp_path)), []
        ends = itertools.accumulate(costs_s)
        clock = itertools.chain.from_iterable(
            (end - cost, end) for cost, end in zip(costs_s, ends, strict=True)
        )

        def sleep(seconds):
            slept.append(seconds)
            sampler._stopped = len(slept) > len(costs_s)

        monkeypatch.setattr(python_sampler, "sleep", sleep)
        monkeypatch.setattr(python_sampler, "thread_time", lambda: next(clock, 0.0))
        monkeypatch.setattr(Sampler, "sample", lambda *_: None)
        sampler.run()
        return slept

    return run


def test_samples_that_cost_little_are_taken_each_period(pauses):
    assert pauses(1e-5, 2e-5, 1e-5) == [PERIOD_S] * 4


def test_dear_samples_take_one_percent_of_a_core(pauses):
    assert pauses(0.003, 0.002, 0.004, 0.004) == pytest.approx([PERIOD_S, PERIOD_S, 0.2, 0.2, 0.4])


def test_a_collection_of_garbage_in_one_sample_ends_no_sampling(pauses):
    assert pauses(1e-5, 0.3, 1e-5, 1e-5) == [PERIOD_S] * 5


def test_a_program_that_collects_garbage_all_the_time_does_not_crash(tmp_path):
    # Before the sampler held collections back, 2 of 3 such runs of 3 s crashed (CPython 3.11.7).
    injected = Path(python_sampler.__file__).parents[1]
    program = str(Path(__file__).with_name("collecting_program.py"))
    environment = {**os.environ, "PYTHONPATH": str(injected)}
    command = [sys.executable, program, str(tmp_path), "4"]

    done = subprocess.run(command, env=environment, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    [samples] = tmp_path.glob("*.stacks")
    assert len(samples.read_text().splitlines()) > 100


def test_what_a_sampled_function_used_is_freed_with_it(tmp_path):
    # A cycle kept it until the next collection: the workers of a DataLoader went on, and waits for
    # them took 28 s of a training of 43 s.
    class Used:
        pass

    def works():
        used = Used()
        begun.set()
        ended.wait()
        return weakref.ref(used)

    begun, ended, result = threading.Event(), threading.Event(), []
    sampler, before = Sampler(str(tmp_path)), gc.isenabled()
    gc.disable()
    try:
        thread = threading.Thread(target=lambda: result.append(works()))
        thread.start()
        begun.wait()
        sampler.sample(threading.get_ident())
        ended.set()
        thread.join()
        assert result[0]() is None
    finally:
        if before:
            gc.enable()


@pytest.mark.parametrize("folder", ["extra", "site-packages", "program"])
@pytest.mark.parametrize("installed", [True, False])
def test_packages_outside_site_packages_are_no_part_of_the_program(tmp_path, folder, installed):
    """As installed by pip --target; into the program's own folder, files are the program's."""
    module = tmp_path / folder / "library" / "core.py"
    module.parent.mkdir(parents=True)
    module.write_text("import time\ndef work():\n    time.sleep(0.3)\n")
    if installed:
        (tmp_path / folder / "library-1.0.dist-info").mkdir()
    (tmp_path / "program").mkdir(exist_ok=True)
    program = tmp_path / "program" / "main.py"
    program.write_text(
        "import sys\nfrom traceview_injected import python_sampler\n"
        "python_sampler.install(sys.argv[1])\nfrom library.core import work\nwork()\n"
    )
    injected = Path(python_sampler.__file__).parents[1]
    paths = os.pathsep.join([str(injected), str(tmp_path / folder)])

    subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
    )

    [samples] = tmp_path.glob("*.stacks")
    frames = [line.split("\t")[3] for line in samples.read_text().splitlines() if line[0] == "F"]
    assert any(model.is_library(file) for file in frames if file.endswith("library/core.py")) == (
        folder == "site-packages" or (folder == "extra" and installed)
    )
    assert str(program) in frames


@pytest.mark.parametrize("collects", [True, False])
def test_whether_garbage_is_collected_is_left_as_it_was(monkeypatch, tmp_path, collects):
    monkeypatch.setattr(python_sampler, "COLLECTS_IN_WALKS", True)
    monkeypatch.setattr(Sampler, "_sample", lambda *_: seen.append(gc.isenabled()))
    seen = []
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        Sampler(str(tmp_path)).sample(0)
        assert (seen, gc.isenabled()) == ([False], collects)
    finally:
        (gc.enable if before else gc.disable)()


# A Python without a GIL: faulthandler writes the stacks while it stops all threads.


@pytest.fixture
def without_gil(monkeypatch):
    monkeypatch.setattr(python_sampler, "has_gil", lambda: False)


@pytest.mark.parametrize("has_gil", [True, False])
def test_both_ways_to_read_stacks_give_the_same_frames(monkeypatch, tmp_path, has_gil):
    monkeypatch.setattr(python_sampler, "has_gil", lambda: has_gil)
    begun, ended = threading.Event(), threading.Event()

    def wärmt_auf():
        begun.set()
        ended.wait()

    thread = threading.Thread(target=wärmt_auf)
    thread.start()
    begun.wait()
    sampler = Sampler(str(tmp_path))
    for _ in range(2):
        sampler.sample(threading.get_ident())
    ended.set()
    thread.join()

    rows = [line.rstrip("\n").split("\t") for line in sampler._lines]
    stack = {row[3] for row in rows if row[0] == "S" and row[2] == str(thread.native_id)}
    frames = [row[2:] for row in rows if row[:1] == ["F"] and {row[1]} == stack]
    line = wärmt_auf.__code__.co_firstlineno + 2
    assert [str(line), wärmt_auf.__code__.co_filename, "wärmt_auf"] in frames
    assert frames[-1][2] == "_bootstrap"


def test_a_python_whose_threads_cannot_be_stopped_is_not_sampled(
    without_gil, monkeypatch, tmp_path
):
    monkeypatch.setattr(python_sampler, "LEAST_WITHOUT_GIL", (99,))

    python_sampler.install(str(tmp_path))

    [note] = gathered_notes(tmp_path)
    assert note.startswith("Python stacks are not sampled: without a GIL")
    assert not [*tmp_path.glob("*.stacks")]


def test_samples_for_which_all_threads_stand_still_take_one_percent(
    without_gil, monkeypatch, pauses
):
    monkeypatch.setattr(
        stack_dumps.StackDumps, "took_s", property(lambda _: 0.003, lambda *_: None), raising=False
    )

    assert pauses(1e-5, 1e-5, 1e-5) == pytest.approx([PERIOD_S, PERIOD_S, 0.3, 0.3])

"""Signals to the recorder: who gets them, how often, and that none is lost."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from traceview.traces.recorders import nsys
from traceview.traces.recorders.nsys import StopSignals

MARKER = "TRACEVIEW_RECORDED_BY=.traceview-of-this-test"
# Tells of each signal; after SIGTERM it ends.
TELLING = """
import signal, sys
def told(number, _):
    print(number, flush=True)
    if number == signal.SIGTERM:
        sys.exit(0)
signal.signal(signal.SIGINT, told)
signal.signal(signal.SIGTERM, told)
print("ready", flush=True)
while True:
    signal.pause()
"""


_Popen = subprocess.Popen


def telling(**added: str) -> "subprocess.Popen[str]":
    command, environment = [sys.executable, "-c", TELLING], {**os.environ, **added}
    process = _Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.skipif(sys.platform != "linux", reason="finds the program in /proc")
def test_a_program_that_runs_on_gets_an_interrupt_once_and_then_time_to_end():
    name, _, value = MARKER.partition("=")
    profiler, program = telling(), telling(**{name: value})
    requests = StopSignals(patience_s=0.5, marker=MARKER, is_alone=True)
    requests.running.append(profiler)

    requests.take(signal.SIGINT, None)

    out, _ = program.communicate(timeout=30)
    assert out.split() == [str(int(signal.SIGINT)), str(int(signal.SIGTERM))]
    requests.running.clear()
    profiler.terminate()
    assert profiler.communicate(timeout=30)[0].split() == [str(int(signal.SIGTERM))]


def test_a_recorded_program_gets_no_signal_but_from_the_profiler():
    name, _, value = MARKER.partition("=")
    profiler, program = telling(), telling(**{name: value})
    requests = StopSignals(patience_s=0.5, marker=MARKER)
    requests.running.append(profiler)

    requests.take(signal.SIGINT, None)

    assert profiler.stdout.readline() == f"{int(signal.SIGINT)}\n"
    requests.running.clear()
    for process in (profiler, program):
        process.terminate()
        assert process.communicate(timeout=30)[0].split() == [str(int(signal.SIGTERM))]


@pytest.mark.parametrize("when", ["before", "while it starts", "afterwards"])
def test_an_interrupt_reaches_a_process_that_is_starting_once(when, monkeypatch):
    requests = StopSignals()

    def started(command, **options):
        assert options == {"process_group": 0}
        process = telling()
        if when == "while it starts":
            requests.take(signal.SIGINT, None)
        return process

    if when == "before":
        requests.take(signal.SIGINT, None)
    monkeypatch.setattr(nsys.subprocess, "Popen", started)
    process = requests.start(["profiler"])
    monkeypatch.undo()
    if when == "afterwards":
        requests.take(signal.SIGINT, None)
    if when != "before":
        assert process.stdout.readline() == f"{int(signal.SIGINT)}\n"
    assert requests.running == [process]
    requests.running.clear()
    process.terminate()
    assert process.communicate(timeout=30)[0] == f"{int(signal.SIGTERM)}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="finds the program in /proc")
def test_a_profiler_that_starts_the_program_after_an_interrupt_gets_it_again(monkeypatch):
    """nsys does not listen yet when it starts; one that has listened must get no second one."""
    monkeypatch.setattr(nsys, "_BETWEEN_LOOKS_S", 0.01)
    monkeypatch.setattr(nsys, "_HEARD_S", 0.05)
    marker = f"{MARKER}-late"
    name, _, value = marker.partition("=")
    profiler = telling()
    requests = StopSignals(marker=marker)
    requests.running.append(profiler)

    requests.take(signal.SIGINT, None)
    assert profiler.stdout.readline() == f"{int(signal.SIGINT)}\n"
    program = telling(**{name: value})
    assert profiler.stdout.readline() == f"{int(signal.SIGINT)}\n"

    requests.running.clear()
    for process in (profiler, program):
        process.terminate()
        assert process.communicate(timeout=30)[0].split() == [str(int(signal.SIGTERM))]


# Exits with the number of signals that its parent did not answer in time.
SENDING = """
import os, select, signal, sys
late = 0
for _ in range(200):
    os.kill(os.getppid(), signal.SIGUSR1)
    if select.select([0], [], [], 5)[0]:
        os.read(0, 9)
    else:
        late += 1
sys.exit(late)
"""


def test_no_signal_is_lost_while_a_thread_starts_processes():
    """Where another thread starts a process, Python may see a signal only after waitpid."""
    over = threading.Event()

    def start_processes():
        while not over.is_set():
            subprocess.run(["true"], check=True, capture_output=True)

    before = signal.signal(signal.SIGUSR1, lambda *_: os.write(answers, b"."))
    sender = subprocess.Popen([sys.executable, "-c", SENDING], stdin=subprocess.PIPE)
    answers = sender.stdin.fileno()
    thread = threading.Thread(target=start_processes)
    thread.start()
    try:
        assert nsys._ended(sender) == 0
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
        sender.stdin.close()

"""Computations of the server: each once, a few at a time, none in the way of what is cached."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from traceview.base.errors import InputError
from traceview.serve.folder import Work


class Gate:
    """A computation that counts its calls and ends when the gate opens."""

    def __init__(self, fails: bool = False) -> None:
        self.begun, self.open = threading.Semaphore(0), threading.Event()
        self.calls = 0
        self._fails = fails

    def compute(self) -> str:
        self.calls += 1
        self.begun.release()
        assert self.open.wait(60)
        if self._fails:
            raise InputError("damaged")
        return f"result {self.calls}"


@pytest.fixture
def pool():
    with ThreadPoolExecutor(32) as threads:
        yield threads


def waiting(work: Work[str], calls: int) -> None:
    """Wait until so many calls are under way."""
    for _ in range(6_000):
        if work._calls == calls:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{work._calls} calls wait, not {calls}")


def test_one_computation_serves_all_who_ask_while_others_are_answered(pool):
    work: Work[str] = Work()
    slow, other = Gate(), Gate()
    asked = [pool.submit(work.result, "slow", slow.compute) for _ in range(5)]
    assert slow.begun.acquire(timeout=60)
    waiting(work, 5)
    # Beside it another one is computed, and a kept one is handed out.
    other.open.set()
    assert work.result("other", other.compute) == "result 1"
    assert work.result("other", other.compute) == "result 1"
    assert not any(each.done() for each in asked)
    slow.open.set()
    assert {each.result(60) for each in asked} == {"result 1"}
    assert (slow.calls, other.calls) == (1, 1)


def test_no_more_run_at_once_and_no_more_wait_than_stated(pool):
    work: Work[str] = Work(at_once=2, most_calls=4)
    gates = [Gate() for _ in range(4)]
    asked = [pool.submit(work.result, at, gate.compute) for at, gate in enumerate(gates)]
    waiting(work, 4)
    with pytest.raises(InputError, match="the server is busy: 4 calls wait"):
        work.result("one more", str)
    assert sum(gate.begun.acquire(timeout=1) for gate in gates) == 2
    for gate in gates:
        gate.open.set()
    assert [each.result(60) for each in asked] == ["result 1"] * 4
    assert work.result("one more", lambda: "then") == "then"


def test_a_failure_reaches_all_who_wait_and_is_not_kept(pool):
    work: Work[str] = Work()
    gate = Gate(fails=True)
    asked = [pool.submit(work.result, "key", gate.compute) for _ in range(3)]
    waiting(work, 3)
    gate.open.set()
    for each in asked:
        with pytest.raises(InputError, match="damaged"):
            each.result(60)
    assert work.result("key", lambda: "mended") == "mended"


def test_the_latest_are_kept(pool):
    work: Work[str] = Work(kept=2)
    for key in ("a", "b", "a", "c"):
        work.result(key, lambda key=key: key)
    assert work.result("a", lambda: "again") == "a"
    assert work.result("b", lambda: "again") == "again"

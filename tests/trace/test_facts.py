"""A fact is computed once, whoever asks."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.build import Export
from traceview.traces.trace import fact


def test_threads_that_ask_together_share_one_answer(tmp_path):
    asked, together = [], threading.Barrier(4)

    @fact
    def slow(trace):
        asked.append(trace)
        return object()

    trace = Export().load(tmp_path)

    def ask():
        together.wait(timeout=10)
        return slow(trace)

    with ThreadPoolExecutor(4) as pool:
        answers = {future.result() for future in [pool.submit(ask) for _ in range(4)]}
    assert len(answers) == len(asked) == 1
    assert slow(trace.but(strict=True)) not in answers


def test_a_fact_that_failed_is_asked_again(tmp_path):
    asked = []

    @fact
    def failing(trace):
        asked.append(trace)
        raise ValueError("no")

    trace = Export().load(tmp_path)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            failing(trace)
    assert len(asked) == 2

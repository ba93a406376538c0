"""Python stacks from the times of calls, against a search through all of them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.trace.kineto.traces import Event, call, python, span, text, write
from traceview.traces.trace.kineto import chunks, columns
from traceview.traces.trace.kineto import python_calls as stacks_calls
from traceview.traces.trace.kineto.reader import read
from traceview.traces.trace.kineto.stacks import LEAST_PERIOD_NS
from traceview.traces.trace.load import load
from traceview.traces.trace.model import Trace

PERIOD_US = LEAST_PERIOD_NS // 1000
CALLS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 120), st.integers(0, 1)), min_size=1, max_size=25
)


def events(calls: list[tuple[int, int, int]]) -> list[Event]:
    """Calls on two threads that may nest, overlap and take no time, with callers that are wrong."""
    found = []
    for number, (start, length, thread) in enumerate(calls):
        name = f"f.py({number + 1}): f{number}"
        event = python(name, PERIOD_US * start, PERIOD_US * length, number + 1, None)
        found.append({**event, "tid": 10 + thread})
    return found


@given(CALLS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_innermost_call_is_the_last_that_started(tmp_path: Path, calls):
    trace = load(write(tmp_path / "t.json", [*events(calls), span("cpu_op", "o", 0, 1)]))
    samples, frames = trace.recorded("python_samples"), trace.recorded("python_frames")
    inner = {row["stack"]: row["function"] for row in frames.rows() if row["depth"] == 0}
    threads = trace.threads.cells("thread_id")
    found = {
        (threads[row["thread"]] - 10, row["time_ns"] // LEAST_PERIOD_NS): inner[row["stack"]]
        for row in samples.rows()
    }
    assert found == expected(calls)


@settings(max_examples=examples(40))
@given(CALLS, st.booleans(), st.sampled_from([1, 2, 5]))
def test_blocks_and_pieces_of_any_length_give_the_same_tables(calls, in_order, rows):
    listed = sorted(calls) if in_order else calls
    waits = [call("cudaStreamSynchronize", PERIOD_US * at + 1, 2, at) for at in range(0, 320, 7)]
    content = text([*events(listed), *waits]).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns, "BLOCK_ROWS", rows)
        patched.setattr(stacks_calls, "BLOCK_ROWS", rows)
        patched.setattr(chunks, "CHUNK_BYTES", 400)
        patched.setattr(chunks, "BLOCK_BYTES", 200)
        pieces = (content[at : at + 200] for at in range(0, len(content), 200))
        split = read(pieces, "split.json")
    whole = read(iter([content]), "whole.json")
    for name in ("python_samples", "call_sites", "api_calls"):
        assert rows_with_stacks(split, name) == rows_with_stacks(whole, name)


def rows_with_stacks(trace: Trace, name: str) -> list[object]:
    """The rows of a table, with the functions of a stack in place of its number."""
    stacks: dict[object, list[object]] = {}
    for frame in trace.table("python_frames").rows():
        stacks.setdefault(frame["stack"], []).append((frame["depth"], frame["function"]))
    return [
        {**row, "stack": stacks[row["stack"]]} if "stack" in row else row
        for row in trace.table(name).rows()
    ]


def expected(calls: list[tuple[int, int, int]]) -> dict[tuple[int, int], str]:
    result = {}
    for thread in (0, 1):
        for time in range(330):
            running = [
                (start, -length, number)
                for number, (start, length, where) in enumerate(calls)
                if where == thread and start <= time < start + length
            ]
            if running:
                result[thread, time] = f"f{max(running)[2]}"
    return result


def test_a_lost_caller_does_not_hide_what_runs(tmp_path: Path):
    calls = [
        python("a.py(1): outer", 0, 100, 1, None),
        python("a.py(2): inner", 10, 20, 2, 77),
        span("cpu_op", "o", 0, 1),
    ]
    trace = load(write(tmp_path / "t.json", calls))
    frames = [(r["stack"], r["function"]) for r in trace.table("python_frames").rows()]
    stacks = {number: [f for at, f in frames if at == number] for number, _ in frames}
    seen = [stacks[row["stack"]] for row in trace.table("python_samples").rows()]
    assert seen == [["outer"]] + [["inner", "outer"]] * 2 + [["outer"]] * 7

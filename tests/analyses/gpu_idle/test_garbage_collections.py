"""Idle time while Python collects garbage: told as that, by whom it was asked, and once."""

import pytest

import traceview
from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

MS = 1_000_000
PAUSE = 600 * MS


STEP = ("train.py", 31, "step")


def program(
    pauses: set[int], steps: int = 42, source: str | None = None, frames=(), part: float = 1
) -> Export:
    """Steps of 50 ms of GPU work and 0.1 ms of CPU work, some with a collection at first.

    For a part of each collection the samples have more `frames` below the line that began it.
    """
    export, now = Export(), 0
    for step in range(steps):
        begin = now
        if step in pauses:
            for sample in range(now, now + PAUSE, 5 * MS):
                inside = frames if sample < now + part * PAUSE else ()
                export.python_sample(sample, *inside, STEP)
            export.python_event("garbage-collection", now, now + PAUSE, source=source)
            now += PAUSE
        for sample in range(now, now + 55 * MS, 5 * MS):
            export.python_sample(sample, ("train.py", 12, "load"))
        call = now + MS // 10
        export.launch(call=(call, call + 5_000), kernel=(call + 10_000, call + 50 * MS))
        now = call + 50 * MS
        export.call("cudaDeviceSynchronize_v3020", call + 6_000, now)
        export.range(f"step_{step}", begin, now)
    return export


def garbage(export, folder):
    findings = ask(ANALYSIS, export, folder).findings
    return [finding for finding in findings if finding.cause == "garbage-collection"]


def test_a_pause_every_seventh_step_is_named_with_its_share(tmp_path):
    export = program(set(range(6, 42, 7)))

    [finding] = garbage(export, tmp_path)

    assert finding.message == (
        "The GPU sat idle for 3.60 s (6 gaps) while Python collected garbage. It took 6 "
        "collections of 600 ms each (median), mostly begun by the objects made at train.py:1 in "
        "step."
    )
    assert "gc.freeze()" in finding.action
    assert finding.subject.name == "train.py:1"
    assert finding.severity == "high"
    assert 55 < finding.share_of_step_pct < 65
    # No second story of the same time, at the line that was running then.
    messages = [each.message for each in ask(ANALYSIS, export, tmp_path).findings]
    assert not any("train.py:31" in message for message in messages)
    assert ("garbage-collection", 6 * PAUSE) in [
        (cause, round(idle, -7))
        for cause, idle in rows(ask(ANALYSIS, export, tmp_path), "causes", "cause", "idle_ns")
    ]


def test_the_line_that_asked_for_the_collection_is_named(tmp_path):
    [finding] = garbage(program(set(range(6, 42, 7)), source="gc.collect()"), tmp_path)

    assert finding.message.endswith(
        "6 collections of 600 ms each (median), called at train.py:1 (`gc.collect()`)."
    )
    assert finding.action.startswith("Call gc.collect() between epochs and not in the loop")


def test_lines_that_ask_in_turn_are_not_named(tmp_path):
    export = program(set(range(6, 42, 7)), source="gc.collect()")
    for row, event in enumerate(export._rows["TRACEVIEW_PYTHON_EVENTS"]):
        event["line"] = row + 1

    [finding] = garbage(export, tmp_path)

    assert finding.message.endswith("It took 6 collections of 600 ms each (median).")


def test_a_line_that_begins_few_collections_is_not_named(tmp_path):
    export = program(set(range(6, 42, 7)))
    events = export._rows["TRACEVIEW_PYTHON_EVENTS"]
    for row, event in enumerate(events):
        event["line"] = row // 2

    [spread] = garbage(export, tmp_path)
    for event in events:
        event |= {"line": 3, "file": "traceview_injected/python_sampler.py"}
    [ours] = garbage(export, tmp_path)

    assert {spread.subject.kind, ours.subject.kind} == {"device"}


def test_one_long_pause_is_no_loss_of_each_step(tmp_path):
    [finding] = garbage(program({20}), tmp_path)

    assert finding.message == (
        "The GPU sat idle for 600 ms (1 gap) while Python collected garbage. It took 1 collection "
        "of 600 ms."
    )
    assert finding.action.startswith("If every step does this, ")
    assert finding.severity == "medium"
    assert finding.share_of_step_pct is None


def test_a_collection_elsewhere_explains_no_gap(tmp_path):
    """It is of another process, or covers less than half of the time."""
    other = program(set()).python_event("garbage-collection", 0, 42 * 55 * MS, process=2)
    short = program(set()).python_event("garbage-collection", 110 * MS, 112 * MS)

    assert not garbage(other, tmp_path)
    assert not garbage(short, tmp_path)


def test_the_whole_report_says_it_first(tmp_path):
    report = traceview.analyze(program(set(range(6, 42, 7))).load(tmp_path))

    assert "garbage" in report.findings[0].finding.message


def installed(path: str) -> str:
    return f"/env/lib/python3.12/{path}"


LOADER = installed("site-packages/torch/utils/data/dataloader.py")
WAITS = {
    "waiting for other processes": (
        (installed("selectors.py"), 415, "select"),
        (installed("multiprocessing/popen_fork.py"), 40, "wait"),
        (installed("multiprocessing/process.py"), 149, "join"),
    ),
    "waiting for other threads": ((installed("threading.py"), 1167, "_wait_for_tstate_lock"),),
    None: (("pool.py", 90, "flatten"),),
}


@pytest.mark.parametrize("waits", WAITS)
@pytest.mark.parametrize(
    "destructor",
    [
        (LOADER, 1673, "__del__"),
        ("pool.py", 12, "__del__"),
        (installed("weakref.py"), 590, "__call__"),
    ],
)
@pytest.mark.parametrize("pauses", [{20}, set(range(6, 42, 7))])
def test_a_destructor_that_takes_the_collection_is_named(tmp_path, pauses, destructor, waits):
    file, line, function = destructor

    [finding] = garbage(program(pauses, frames=(*WAITS[waits], destructor)), tmp_path)

    place = f"{file.rpartition('/')[2]}:{line} in {function}"
    assert f"passed in the destructor at {place}{f', {waits}' if waits else ''}." in finding.message
    assert "outside of the loop" in finding.action
    assert "gc.freeze()" not in finding.action


def test_the_outermost_of_several_destructors_is_named(tmp_path):
    inner = (LOADER, 1673, "__del__")
    export = program({20}, frames=(*WAITS[None], inner, ("cache.py", 3, "__del__")))

    [finding] = garbage(export, tmp_path)

    assert "the destructor at cache.py:3 in __del__." in finding.message


def test_a_destructor_in_less_than_half_of_the_time_is_not_the_cause(tmp_path):
    [finding] = garbage(program({20}, frames=((LOADER, 1, "__del__"),), part=0.4), tmp_path)

    assert "destructor" not in finding.message
    assert "gc.freeze()" in finding.action

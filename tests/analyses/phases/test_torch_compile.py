"""What torch.compile reported: recompilation in the loop with its guard, graph breaks, limits."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS as GPU_IDLE
from traceview.traces.analyses.phases.analysis import ANALYSIS
from traceview.traces.trace.load import load
from traceview.traces.trace.scrub.scrubber import scrub

MS = 1_000_000
STEP = ("train.py", 31, "step")
SIZES = "tensor 'x' size mismatch at index 0. expected {}, actual {}"


def program(
    recompiled: dict[int, str], steps: int = 40, step_ns: int = 20 * MS, first_ms: int = 0
) -> Export:
    """Steps, usually of 20 ms; some first compile for 200 ms, for a reason."""
    export, now = Export(), 0
    if first_ms:
        export.launch(call=(0, 5_000), kernel=(10_000, 20_000))
        export.python_event("compilation", MS, (1 + first_ms) * MS, at=STEP)
        now = (1 + first_ms) * MS
    for step in range(steps):
        begin = now
        if reason := recompiled.get(step):
            export.python_event("recompilation", now, now + 200 * MS, at=STEP, reason=reason)
            now += 200 * MS
        export.launch(call=(now, now + 5_000), kernel=(now + 10_000, now + step_ns))
        now += step_ns
        export.range(f"step_{step}", begin, now)
    return export


def messages(export, folder, analysis=ANALYSIS):
    return [finding.message for finding in ask(analysis, export, folder).findings]


def test_a_size_that_changes_is_recompiled_for(tmp_path):
    export = program({n: SIZES.format(n, n + 1) for n in range(10, 34, 2)})

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message == (
        "Code was compiled again inside the loop by torch.compile: in 12 of 40 steps, 2.40 s in "
        "all, 80.0 % of the loop. `step` at train.py:31 is compiled again: tensor 'x' size "
        "mismatch at index 0. expected 10, actual 11 (then 13, 15, …)."
    )
    assert "mark_dynamic" in finding.action
    assert finding.subject.name == "train.py:31"
    # The gaps are told there, and not once more as idle time.
    assert not messages(export, tmp_path, GPU_IDLE)


def test_a_number_that_changes_has_another_remedy(tmp_path):
    export = program({n: f"n == {n}" for n in range(10, 34, 2)})

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert "`step` at train.py:31 is compiled again: n == 10 (then 12, 14, …)." in finding.message
    assert finding.action.startswith("Pass the number that changes as a tensor")


@pytest.mark.parametrize("reason", [SIZES, "n == {}"])
@pytest.mark.parametrize("times", [2, 3, 5])
@pytest.mark.parametrize("first_ms", [100, 5_000])
def test_what_is_learned_before_the_loop_is_told_with_its_guard(tmp_path, reason, times, first_ms):
    """Of a few sizes, each is compiled once: the loop does not pay for it, but the run does."""
    sizes = {step: reason.format(step, step + 1) for step in range(times)}
    export = program(sizes, 60, first_ms=first_ms)

    said = [text for text in messages(export, tmp_path) if "Compilation by" in text]

    is_much = 4 * 200 * times >= first_ms + 200 * times
    guard = reason.format(0, 1)
    told = f"`step` at train.py:31 was compiled again, {times} times: {guard}"
    assert [told in text for text in said] == [times >= 3 and is_much]


@pytest.mark.parametrize(
    ("recompiling", "told"),
    [
        (range(1, 12), "in 11 of 12 steps"),
        # Sizes that vary are learned once.
        (range(1, 4), None),
        (range(1, 6), None),
    ],
)
def test_what_each_step_recompiles_is_told_though_it_is_one_window(tmp_path, recompiling, told):
    export = program({n: f"self.schedule == {n - 1}" for n in recompiling}, 12, step_ns=15 * MS)

    said = [text for text in messages(export, tmp_path) if "inside the loop" in text]

    assert len(said) == (told is not None)
    assert all(told in text for text in said)
    assert all("is compiled again: self.schedule == 0 (then 1, 2, …)." in text for text in said)


def test_garbage_of_the_compiler_is_compilation(tmp_path):
    export = program({n: f"n == {n}" for n in range(10, 34, 2)})
    for step in range(12):
        begin = 200 * MS + step * 240 * MS
        export.python_event("garbage-collection", begin + 10 * MS, begin + 150 * MS)

    causes = rows(ask(GPU_IDLE, export, tmp_path), "causes", "cause")

    assert ("compilation",) in causes
    assert ("garbage-collection",) not in causes


def test_graph_breaks_are_told_with_line_and_reason(tmp_path):
    export = program({})
    for line in (20, 27, 28):
        export.python_event("compilation", 0, 1 * MS, at=("train.py", line, "forward"))
    for line, source in ((27, "y = x.item()"), (28, "print(y)")):
        at = ("train.py", line, "forward")
        export.python_event("graph-break", 0, 0, at=at, source=source, reason="Tensor.item()")

    result = ask(ANALYSIS, export, tmp_path)

    assert [finding.message for finding in result.findings] == [
        "torch.compile breaks the graph of `forward` at train.py:27 (`y = x.item()`): "
        "Tensor.item(). 1 other line breaks graphs, too. Instead of one graph per function, there "
        "are 3 in all."
    ]
    assert rows(result, "compiled", "kind", "line", "times", "total_ns") == [
        ("compilation", 20, 1, MS),
        ("compilation", 27, 1, MS),
        ("compilation", 28, 1, MS),
        ("graph-break", 27, 1, 0),
        ("graph-break", 28, 1, 0),
    ]


def test_compilation_is_told_with_the_line_that_breaks_its_graph(tmp_path):
    export = Export().launch((0, 5_000), (6_000, 10_000))
    export.python_event("compilation", MS, 2_000 * MS, at=("train.py", 20, "forward"))
    at = ("train.py", 27, "forward")
    export.python_event("graph-break", 2 * MS, 2 * MS, at=at, source="if x.any():", reason="Branch")
    for step in range(40):
        begin = (2_000 + 5 * step) * MS
        export.launch((begin, begin + 5_000), (begin + 6_000, begin + 5 * MS))

    [finding] = [
        each
        for each in ask(ANALYSIS, export, tmp_path).findings
        if each.message.startswith("Compilation by torch.compile took 2.00 s")
    ]

    assert finding.message.endswith(
        "The graph of `forward` breaks at train.py:27 (`if x.any():`): Branch: each part is "
        "compiled apart."
    )
    assert finding.subject.name == "train.py:27"
    assert finding.action.startswith("Move the line out of the compiled function")


@pytest.mark.parametrize(("passes", "alone"), [(1, True), (2, False), (40, False)])
def test_first_calls_alone_are_to_be_made_before_the_recording(tmp_path, passes, alone):
    export = Export().launch((0, 5_000), (6_000, 10_000))
    export.python_event("compilation", MS, 2_000 * MS, at=("train.py", 20, "forward"))
    for step in range(passes):
        begin = (2_000 + 100 * step) * MS
        export.range(f"step_{step}", begin, begin + 90 * MS)
        export.launch((begin, begin + 5_000), (begin + 6_000, begin + 80 * MS))

    [finding] = [
        each
        for each in ask(ANALYSIS, export, tmp_path).findings
        if each.message.startswith("Compilation by torch.compile took 2.00 s")
    ]

    text = "Make the first calls before the recording, and record several passes"
    assert finding.action.startswith(text) == alone
    assert "compile cache that outlives the run" in finding.action


@pytest.mark.parametrize(("pause", "severity"), [(0, "info"), (10 * MS, "low")])
def test_a_graph_break_counts_where_the_gpu_waits_for_launches(tmp_path, pause, severity):
    export, now = Export(), 0
    at = ("train.py", 27, "forward")
    export.python_event("graph-break", 0, 0, at=at, source="y = x.item()", reason="Tensor.item()")
    for _ in range(40):
        export.launch((now, now + 5_000), (now + 6_000, now + 5 * MS))
        now += 5 * MS + pause

    export.python_event("compilation", 0, MS, at=("train.py", 20, "forward"))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.severity == severity
    # One graph is what there should be.
    assert "in all" not in finding.message


def test_code_that_runs_without_compilation(tmp_path):
    limit = "recompile_limit: n == 3"
    export = program({}).python_event("compile-limit", 0, 2 * MS, at=STEP, reason=limit)
    export.python_event("uncompiled", 0, 2 * MS, at=STEP, reason="generator")

    assert messages(export, tmp_path) == [
        "`step` at train.py:31 was compiled as often as torch.compile allows, and runs without "
        "compilation where no version fits (recompile_limit: n == 3).",
        "torch.compile could not compile `step` at train.py:31, which runs without it: generator.",
    ]


def test_reasons_are_scrubbed_as_lines_of_source(tmp_path):
    reason = "L['secret'] == 'hunter2'"
    program(dict.fromkeys(range(10, 34, 2), reason)).load(tmp_path)
    scrub(tmp_path / "built.sqlite", tmp_path / "clean.sqlite")
    scrub(tmp_path / "built.sqlite", tmp_path / "own.sqlite", own=True)

    clean, own = (
        load(tmp_path / f"{name}.sqlite").recorded("python_events") for name in ("clean", "own")
    )

    assert {*clean.texts("kind").decode()} == {"recompilation"}
    assert {*clean.texts("reason").decode()} == {None}
    assert {*own.texts("reason").decode()} == {reason}


@pytest.mark.parametrize("queued", [False, True])
def test_guards_are_told_where_the_gpu_waits_for_them(tmp_path, queued):
    export, at = Export(), 10 * MS
    export.python_event("compilation", 0, 5 * MS, at=STEP, guards=900_000)
    for step in range(30):
        begin = at
        # A check of 2 ms, then a kernel of 4 ms; the GPU has work for the check, or has not.
        export.range("TorchDynamo Cache Lookup", at, at + 2 * MS)
        kernel = at + (-2 * MS if queued else 3 * MS)
        export.launch(
            (at + 2 * MS, at + 2 * MS + 5_000), (max(kernel, at + 2 * MS + 6_000), at + 7 * MS)
        )
        if queued:
            export.kernel_without_launch((at, at + 2 * MS + 6_000))
        at += 7 * MS
        export.range(f"step_{step}", begin, at)

    told = [message for message in messages(export, tmp_path) if "guards" in message]

    said = (
        "The GPU sits idle for 58.0 ms (28.6 % of the time after warm-up) while torch.compile "
        "checks guards, 29 times. Those of `step` at train.py:31 take longest, 900 µs each time."
    )
    assert told == ([] if queued else [said])

"""Graph breaks of torch.compile as the reason of late launches."""

import pytest

from tests.analyses.gpu_idle.test_lines import BACKWARD, LINEAR, MAIN, MS, SITE, loop, sample_gaps
from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS
from traceview.traces.analyses.phases.analysis import ANALYSIS as PHASES
from traceview.traces.recorders.injected.traceview_injected import sync_call_sites
from traceview.traces.trace import model

COMPILED = (f"{SITE}/torch/_dynamo/eval_frame.py", 800, "compile_wrapper")
PART = ("/work/layers.py", 20, "forward")
REST = ("/work/layers.py", 24, "torch_dynamo_resume_in_forward_at_23")
GRAPH = ("/tmp/torchinductor_root/ab/cab.py", 90, "call")


def broken(export):
    for line, function in ((9, "other"), (23, "forward")):
        at, why = ("layers.py", line, function), "logging.Logger method not supported"
        export.python_event("graph-break", 0, 0, at=at, source="log.debug(x)", reason=why)
    return export


def findings(export, folder):
    return [each for each in ask(ANALYSIS, export, folder).findings if each.severity != "info"]


@pytest.mark.parametrize("part", [PART, REST])
def test_late_launches_of_a_broken_graph_name_the_break(tmp_path, part):
    export = loop(gap_ms=2)
    sample_gaps(export, GRAPH, part, LINEAR, COMPILED, MAIN, gap_ms=2)

    [finding] = findings(broken(export), tmp_path)

    assert (
        "was between parts of a graph: torch.compile breaks that of `forward` at layers.py:23 "
        "(`log.debug(x)`): logging.Logger method not supported." in finding.message
    )
    assert finding.subject.name == "layers.py:23"
    assert "torch.cond" in finding.action
    # It is told there, and not once more.
    assert {each.severity for each in ask(PHASES, export, tmp_path).findings} == {"info"}


@pytest.mark.parametrize(
    "stack",
    [
        # A whole graph has no line of the program inside.
        (GRAPH, COMPILED, MAIN),
        # Not compiled.
        (LINEAR, PART, MAIN),
        # The backward pass, of which nothing is known.
        (BACKWARD, MAIN),
    ],
)
def test_a_break_elsewhere_is_no_reason(tmp_path, stack):
    export = sample_gaps(loop(gap_ms=2), *stack, gap_ms=2)

    [finding] = findings(broken(export), tmp_path)

    assert "breaks" not in finding.message
    assert finding.subject.name != "layers.py:23"


@pytest.mark.parametrize("kind", ["compile-limit", "uncompiled"])
def test_code_that_runs_without_compilation_is_no_broken_graph(tmp_path, kind):
    export = sample_gaps(loop(gap_ms=2), GRAPH, PART, LINEAR, COMPILED, MAIN, gap_ms=2)
    export.python_event(kind, 0, 0, at=("layers.py", 20, "forward"), reason="n == 3")

    [finding] = findings(broken(export), tmp_path)

    assert "breaks" not in finding.message


def test_a_line_that_waits_and_breaks_a_graph_has_both(tmp_path):
    export = loop(gap_ms=4)
    sample_gaps(export, ("/work/layers.py", 23, "forward"), MAIN, gap_ms=4)

    [finding] = findings(broken(export), tmp_path)

    assert finding.message.endswith(
        " torch.compile breaks the graph of `forward` there: logging.Logger method not supported."
    )


HASHED = "/data/cache/cq/ccqe6lkyzvtzn5gnhh4egwqdpbhbp3l7dj7nrwqsyzabc234567x.py"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (HASHED, True),
        (HASHED.replace("/cq/", "/ab/"), False),
        ("/home/me/ab/cab.py", False),
        ("/opt/lib/python3.13t/threading.py", True),
        ("/work/python3.13t/train.py", False),
    ],
)
def test_code_that_inductor_generated_and_the_standard_library_are_libraries(file, expected):
    assert model.is_library(file) is expected
    if "threading" not in file:
        assert (sync_call_sites.rank_of(file) == sync_call_sites.FRAMEWORK) is expected


@pytest.mark.parametrize(("ran_on", "severity"), [(False, "high"), (True, "medium")])
def test_compilation_of_a_program_that_ran_on_is_of_unknown_share(tmp_path, ran_on, severity):
    export = Export().python_event("compilation", 0, 900 * MS, at=("train.py", 9, "step"))
    if ran_on:
        export.run(first_s="20")
    for step in range(40):
        now = (901 + step) * MS
        export.launch((now, now + 5_000), (now + 6_000, now + MS))

    [finding] = [each for each in ask(PHASES, export, tmp_path).findings if each.severity != "info"]

    assert finding.message.startswith("Compilation by torch.compile took 900 ms")
    assert finding.severity == severity

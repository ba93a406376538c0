"""Graph breaks of torch.compile as the reason of late launches."""

import pytest

from tests.analyses.gpu_idle.test_lines import BACKWARD, LINEAR, MAIN, SITE, loop, sample_gaps
from tests.analyses.single_answer import ask
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS
from traceview.traces.analyses.phases.analysis import ANALYSIS as PHASES

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


def test_a_line_that_waits_and_breaks_a_graph_has_both(tmp_path):
    export = loop(gap_ms=4)
    sample_gaps(export, ("/work/layers.py", 23, "forward"), MAIN, gap_ms=4)

    [finding] = findings(broken(export), tmp_path)

    assert finding.message.endswith(
        " torch.compile breaks the graph of `forward` there: logging.Logger method not supported."
    )

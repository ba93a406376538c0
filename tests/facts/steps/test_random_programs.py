"""Random programs run through every inference of steps, and every answer, without an error."""

import numpy as np
import pytest
from hypothesis import given, settings

import traceview
from tests.facts.steps.random_programs import PROGRAMS, exported
from traceview.base.failures import FailureWarning
from traceview.traces.analyses.base import Failed, Result
from traceview.traces.facts.operations import operations
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


@settings(max_examples=60)
@given(PROGRAMS)
def test_steps_follow_one_another(folder, program):
    trace = with_steps(exported(program).load(folder))
    found = steps(trace)
    assert np.all(found.cpu_end_ns >= found.cpu_start_ns)
    assert np.all(found.cpu_start_ns >= 0)
    together = found.series[1:] == found.series[:-1]
    assert np.all(found.cpu_start_ns[1:][together] >= found.cpu_end_ns[:-1][together])
    assert found.operations.sum() <= len(operations(trace))


@pytest.mark.slow
@settings(max_examples=100)
@given(PROGRAMS)
def test_every_answer_is_given(folder, program):
    trace = exported(program).load(folder)
    report = traceview.analyze(trace)
    assert [name for name, answer in report.outcomes.items() if isinstance(answer, Failed)] == []
    assert [text for text in report.trace.warnings if isinstance(text, FailureWarning)] == []
    kernels = trace.recorded("kernels")
    shares = report.outcomes["kernel-share"]
    if isinstance(shares, Result):
        total = int((kernels["end_ns"] - kernels["start_ns"]).sum())
        assert int(shares.tables["kernels"]["total_ns"].sum()) == total

"""No finding claims more time than there is, on random recordings."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.oracles.test_random_attribution import LAUNCH, RANGE, written
from traceview.traces.facts.idle.gaps import steady_spans_ns
from traceview.traces.reporting import analyze, duration_ns

CALMLY = settings(
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
WAIT = st.tuples(st.integers(0, 120), st.integers(1, 40), st.integers(1, 2))


@CALMLY
@given(
    st.lists(RANGE, max_size=8),
    st.lists(LAUNCH, min_size=1, max_size=20),
    st.lists(WAIT, max_size=4),
)
def test_time_at_stake_is_within_the_steady_time_of_one_device(ranges, launches, waits):
    export = written(ranges, launches, registered=False)
    for start, length, process in waits:
        export.sync("cudaStreamSynchronize_v3020", start, start + length, process=process)
    with tempfile.TemporaryDirectory() as folder:
        trace = export.load(Path(folder))
    report = analyze(trace)
    steady_ns = max(steady_spans_ns(trace).values(), default=0)
    for ranked in report.findings:
        finding = ranked.finding
        if finding.share_of_step_pct is None:
            assert finding.time_at_stake_ns <= duration_ns(trace), finding.message
        else:
            assert finding.time_at_stake_ns <= steady_ns, finding.message
            assert 0 <= finding.share_of_step_pct <= 100, finding.message
    assert report.verdict is not None
    busy = report.verdict.gpu_busy_pct
    assert busy is None or 0 <= busy <= 100

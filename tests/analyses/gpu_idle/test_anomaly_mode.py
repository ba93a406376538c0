"""PyTorch's anomaly detection, which formats a stack per operation and checks each gradient."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from tests.facts.phases.test_compilation import COMPILE, MAIN
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

MS = 1_000_000
TORCH = "/lib/python3.12/site-packages/torch"
FORMAT = (f"{TORCH}/fx/traceback.py", 421, "format_stack")
EXTRACT = ("/lib/python3.12/traceback.py", 395, "extract")
OTHER = ("/work/trace.py", 5, "format_stack")
FORWARD = ("/work/model.py", 40, "forward")


def findings(tmp_path, frames, *, formats=3, checks=0, steps=10):
    """Steps of 20 ms, sampled each ms, `formats` times at `frames`; each launches 10 kernels."""
    export = Export()
    for step in range(steps):
        at = step * 20 * MS
        export.range(f"step_{step}", at, at + 20 * MS)
        for number in range(10):
            time = at + number * MS
            export.launch((time, time + 10_000), (time + 20_000, time + 30_000))
        for number in range(checks):
            time = at + (10 + number) * MS
            call, copy = (time, time + 40_000), (time + 20_000, time + 30_000)
            export.copy(call, copy, bytes=1, kind="D2H", source="device", destination="pageable")
        for number in range(20):
            export.python_sample(
                at + number * MS + 1, *(frames if number < formats else ()), FORWARD, MAIN
            )
    said = ask(ANALYSIS, export, tmp_path).findings
    return [each for each in said if "anomaly detection" in each.message]


@pytest.mark.parametrize("frames", [(FORMAT,), (EXTRACT, FORMAT)])
@pytest.mark.parametrize(("formats", "checks"), [(3, 0), (3, 5), (12, 5), (8, 1)])
def test_anomaly_detection_that_was_left_on_is_a_finding(tmp_path, frames, formats, checks):
    [finding] = findings(tmp_path, frames, formats=formats, checks=checks)

    assert f"takes {5.0 * formats:.1f} % of the steps, by samples" in finding.message
    assert (f"{9 * checks} checks for NaN" in finding.message) is (checks > 0)
    part = formats / 20
    part += (1 - part) * 3 * checks / (10 + checks)
    assert finding.share_of_step_pct == pytest.approx(100 * part, rel=0.05)
    assert finding.saving == "at-most"


@pytest.mark.parametrize("frames", [(), (OTHER,), (FORMAT, COMPILE), (EXTRACT,)])
def test_other_stacks_show_no_anomaly_detection(tmp_path, frames):
    assert not findings(tmp_path, frames, checks=3)


def test_few_samples_show_none(tmp_path):
    assert not findings(tmp_path, (FORMAT,), formats=1, steps=4)

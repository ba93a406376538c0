"""What a recording was asked for, and remedies that do not ask for it again."""

import pytest

from tests.build import Export
from traceview.traces.analyses.roofline import ANALYSIS
from traceview.traces.trace.load import load
from traceview.traces.trace.model import RecordingOptions, recording_options


def test_options_of_the_command_line(tmp_path):
    command = "nsys profile --pytorch=autograd-shapes-nvtx --gpu-metrics-devices=all python3 a.py"
    trace = Export().run(nsys_command=command).load(tmp_path)

    assert recording_options(trace) == RecordingOptions(shapes=True, gpu_metrics=True)


def test_options_of_the_metadata(tmp_path):
    export = Export().capture("PYTHON_BACKTRACE_SAMPLING_OPTIONS:COLLECT_SAMPLES", "true")
    kind = "PROCESS_0:CUDA_BACKTRACE_OPTIONS:COLLECT_KERNEL_BACKTRACES"
    trace = export.capture(kind, "true").load(tmp_path)

    assert recording_options(trace) == RecordingOptions(call_chains=True, python_samples=True)


def test_a_command_line_cut_short_tells_nothing(tmp_path):
    trace = Export().run(nsys_command="nsys profile --pytorch='autograd-shapes-nvtx").load(tmp_path)

    assert recording_options(trace) == RecordingOptions()


@pytest.mark.parametrize(
    ("recording", "advised", "not_advised"),
    [
        ("shapes", "--gpu-metrics", "--shapes"),
        ("metrics", "--ncu", "--gpu-metrics"),
        ("cupy", "--gpu-metrics", "--shapes"),
    ],
)
def test_roofline_asks_for_nothing_that_was_recorded(unpack, recording, advised, not_advised):
    outcome = ANALYSIS.run(load(unpack(recording)))
    text = " ".join([*getattr(outcome, "notes", ()), getattr(outcome, "remedy", "")])

    assert advised in text
    assert not_advised not in text

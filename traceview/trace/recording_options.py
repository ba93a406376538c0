"""The options that a recording was made with, so that no remedy suggests them again."""

from __future__ import annotations

import shlex

from traceview.records import record
from traceview.trace.model import Trace, fact

_COMMAND = "nsys_command"
"""Key of the command line in TRACEVIEW_RUN."""
_CHAINS = "PROCESS_0:CUDA_BACKTRACE_OPTIONS:COLLECT_"
_PYTHON_SAMPLES = "PYTHON_BACKTRACE_SAMPLING_OPTIONS:COLLECT_SAMPLES"


@record
class RecordingOptions:
    """The options of the recorder, False where unknown."""

    shapes: bool = False
    call_chains: bool = False
    python_samples: bool = False
    gpu_metrics: bool = False
    bounded: bool = False
    """Whether only a part of the program was recorded: nsys with --capture-range."""


@fact
def recording_options(trace: Trace) -> RecordingOptions:
    """The options of the recording, from its metadata and from what it contains."""
    try:
        words = shlex.split(trace.run.get(_COMMAND, ""))
    except ValueError:
        words = []
    chains = (key for key in trace.capture if key.startswith(_CHAINS))
    sampled = trace.capture.get(_PYTHON_SAMPLES) == "true" or "--python-sampling=true" in words
    return RecordingOptions(
        shapes=any("shapes-nvtx" in word for word in words)
        or trace.run.get("record_shapes") == "1",
        call_chains=any(trace.capture[key] == "true" for key in chains),
        python_samples=sampled or bool(len(trace.recorded("python_samples"))),
        bounded=any(word.startswith("--capture-range=") for word in words),
        gpu_metrics=any("gpu-metrics" in word for word in words) or "gpu_metrics" in trace.tables,
    )

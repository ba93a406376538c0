"""Classes of timeline rows: each has one colour and one entry in the legend."""

from __future__ import annotations

from traceview.analyses.phases.phases import Phase
from traceview.facts.operations.cuda_api import CallKind
from traceview.facts.operations.kernel_classes import KernelClass
from traceview.vocabulary.activities import ACTIVITY_NAMES
from traceview.vocabulary.causes import CAUSE_NAMES

COPIES = ("h2d", "d2h", "d2d", "p2p", "other", "migration")
_CALLS = {
    CallKind.OTHER: "call",
    CallKind.LAUNCH: "call-launch",
    CallKind.SYNCHRONIZE: "call-sync",
    CallKind.COPY: "call-copy",
    CallKind.COPY_ASYNC: "call-copy",
    CallKind.ALLOCATE: "call-allocate",
    CallKind.LOAD: "call-load",
    CallKind.LOOK_UP: "call-load",
    CallKind.GRAPH: "call-graph",
}
CLASSES: tuple[str, ...] = (
    *(f"kernel-{kind.label}" for kind in KernelClass),
    *(f"copy-{direction}" for direction in COPIES),
    "memset",
    "graph",
    *dict.fromkeys(_CALLS.values()),
    "call-harmful",
    "range",
    "step",
    "step-warm-up",
    "step-outlier",
    *(f"phase-{phase.label}" for phase in Phase),
    *(f"python-{doing}" for doing in ACTIVITY_NAMES),
    *(f"idle-{cause}" for cause in CAUSE_NAMES),
)
"""Published names of the classes; a row of the timeline refers to one by its index here."""
NUMBER = {name: number for number, name in enumerate(CLASSES)}

FIRST_KERNEL = NUMBER["kernel-gemm"]
"""The first class of kernels; the others follow in the order of KernelClass."""
FIRST_PHASE = NUMBER["phase-start-up"]
FIRST_DOING = NUMBER["python-cpu"]
FIRST_CAUSE = NUMBER[f"idle-{CAUSE_NAMES[0]}"]
CLASS_OF_CALL = tuple(NUMBER[_CALLS[kind]] for kind in CallKind)
HARMFUL = NUMBER["call-harmful"]

"""What other tables know of each kernel: the columns that `Trace.kernels` puts before its own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview.base.tables import NULL, Array, Column, Texts
from traceview.base.vocabulary.kernel_words import KernelClass
from traceview.traces.facts.kernel_classes import kernel_classes, kernel_labels
from traceview.traces.facts.launches import queue_wait_ns
from traceview.traces.facts.operations import kernel_operations, operations
from traceview.traces.facts.ranges.ranges import attributed_operations, range_tree
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import step_names, step_of_operations
from traceview.traces.trace import Trace

COLUMNS = (
    Column("label", "text", "short distinct name, as in reports"),
    Column("duration_ns", "int64", "from start to end on the GPU"),
    Column("kernel_class", "text", "what it computes: gemm, attention, elementwise …"),
    Column("step", "text", "name of the step that it was launched in", nullable=True),
    Column("range_path", "text", "ranges that it was launched in, outermost first"),
    Column("launched_ns", "int64", "start of its launch call", nullable=True),
    Column("queue_wait_ns", "int64", "from the end of its launch call to its start", nullable=True),
)


def columns_of(trace: Trace) -> Mapping[str, Array | Texts]:
    """The values of COLUMNS for each row of kernels, with steps inferred where none are marked."""
    stepped = with_steps(trace)
    rows, ops, kernels = kernel_operations(stepped), operations(stepped), stepped.table("kernels")
    call, names = ops.call[rows], step_names(stepped)
    starts = np.append(stepped.recorded("api_calls")["start_ns"], NULL)
    waits = queue_wait_ns(stepped)[rows]
    tree = range_tree(stepped)
    labels = [KernelClass(number).label for number in range(len(KernelClass))]
    step = np.append(names.codes, np.int32(-1))[step_of_operations(stepped)[rows]]
    return {
        "label": kernel_labels(stepped),
        "duration_ns": kernels.duration_ns,
        "kernel_class": Texts.of(labels).take(kernel_classes(stepped)),
        "step": Texts(step, lambda: names.values),
        "range_path": tree.paths.texts(attributed_operations(stepped).path(tree)[rows]),
        "launched_ns": starts[call],
        "queue_wait_ns": np.where(waits < 0, NULL, waits),
    }

"""Which launch of Nsight Compute's run is which kernel of the trace."""

import math

from tests.build import Export
from traceview.base.tables import Table
from traceview.traces.facts.work.kernel_work import from_counters
from traceview.traces.trace.schema import KERNEL_COUNTERS

GRID = {"grid_x": 132, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
NOTHING = {"process_id": 7, "flop": None, "flop_kind": None}


def of(tmp_path, kernels, *launches):
    """Bytes of each kernel; a launch is a name, its bytes and what else it has."""
    export = Export()
    for number, (name, columns) in enumerate(kernels):
        start = 100 * number
        export.launch((start, start + 1), (start + 2, start + 90), name=name, **columns)
    rows = [{**GRID, **NOTHING, "short_name": n, "bytes": b, **more} for n, b, more in launches]
    trace = export.load(tmp_path)
    counters = Table.from_rows(KERNEL_COUNTERS.columns, rows)
    trace = trace.but(tables={**trace.tables, "kernel_counters": counters})
    return [None if math.isnan(each) else each for each in from_counters(trace).bytes.tolist()]


def test_as_many_launches_are_matched_in_order(tmp_path):
    kernels = [("a", {}), ("b", {}), ("a", {})]

    assert of(tmp_path, kernels, ("a", 1.0, {}), ("a", 2.0, {}), ("b", 3.0, {})) == [1.0, 3.0, 2.0]


def test_fewer_launches_give_their_mean(tmp_path):
    kernels = [("a", {})] * 4

    assert of(tmp_path, kernels, ("a", 1.0, {}), ("a", 3.0, {}), ("a", None, {})) == [2.0] * 4


def test_grid_and_block_must_agree(tmp_path):
    kernels = [("a", {}), ("a", {"gridX": 5}), ("a", {"blockY": 2}), ("c", {})]

    assert of(tmp_path, kernels, ("a", 1.0, {}), ("a", 2.0, {"grid_x": 5})) == [
        1.0,
        2.0,
        None,
        None,
    ]


def test_templates_of_the_name_do_not_matter(tmp_path):
    assert of(tmp_path, [("a<float>(int)", {})], ("a", 1.0, {})) == [1.0]


def test_several_processes_have_no_common_order(tmp_path):
    kernels = [("a", {"process": 1}), ("a", {"process": 2})]

    assert of(tmp_path, kernels, ("a", 1.0, {}), ("a", 3.0, {"process_id": 8})) == [2.0, 2.0]


def test_a_file_without_launches(tmp_path):
    assert of(tmp_path, [("a", {})]) == [None]


def test_a_trace_without_counters(tmp_path):
    assert from_counters(Export().launch((0, 1), (2, 3)).load(tmp_path)) is None

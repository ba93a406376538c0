"""What every analysis promises, asked of all of them."""

import hashlib
import pkgutil
import re
from importlib import import_module

import numpy as np
import pytest

import traceview.traces.analyses
from tests.build import Export, without
from tests.conftest import SHIPPED
from traceview.base.findings import SEVERITIES
from traceview.base.tables import Texts
from traceview.traces.analyses import ALL
from traceview.traces.analyses.base import Result, Skipped
from traceview.traces.reporting import duration_ns
from traceview.traces.trace import Selection
from traceview.traces.trace.load import load
from traceview.traces.trace.schema import TABLES

PUBLISHED = {
    "kernel-share": {
        "kernels": "name short_name calls total_ns mean_ns median_ns min_ns max_ns share_pct",
        "ranges": "range_path short_name calls total_ns share_pct",
        "classes": "device_id class calls total_ns share_pct",
    },
    "phases": {"phases": "process_id phase start_ns end_ns busy_pct verdict"},
    "gpu-idle": {
        "devices": "device_id span_ns busy_ns idle_ns busy_pct",
        "gaps": "device_id start_ns duration_ns cause range_path",
        "causes": "device_id cause gaps idle_ns",
        "lines": "device_id file line function inner source samples idle_ns",
    },
    "steps": {
        "series": "series steps warm_up_steps outliers median_ns p90_ns gpu_busy_pct process_id",
        "steps": "step kind duration_ns why gpu_busy_ns gpu_idle_ns sync_wait_ns launches "
        "operations lead_ns series process_id",
        "parts": "step part part_ns",
    },
    "run-ahead": {
        "streams": "process_id device_id stream_id operations queue_wait_median_ns "
        "queue_wait_p90_ns queue_wait_max_ns max_queue_depth mean_queue_depth",
        "devices": "device_id operations queue_wait_median_ns queue_wait_max_ns max_queue_depth "
        "verdict",
        "ranges": "name cpu_start_ns cpu_end_ns gpu_start_ns gpu_end_ns lead_ns steps_ahead",
    },
    "sync-stalls": {
        "calls": "api calls wait_ns",
        "sites": "api range_path call_site calls wait_ns benign_ns idle_after_ns hint",
    },
    "memory": {
        "peaks": "device_id peak_bytes at_ns range_path growth_bytes_per_step allocations_per_step",
    },
    "memory-copies": {"copies": "direction host_memory calls bytes total_ns bytes_per_s"},
    "launch-overhead": {"calls": "api calls total_ns median_ns exposed_ns"},
    "wave-quantization": {
        "kernels": "short_name grid block registers_per_thread shared_memory_bytes calls total_ns "
        "blocks blocks_per_sm limiter theoretical_occupancy_pct waves tail_idle_pct tail_loss_ns "
        "blocks_to_fill",
    },
    "roofline": {
        "kernels": "short_name calls total_ns bytes flop achieved_bytes_per_s "
        "achieved_flop_per_s flop_per_byte bound basis"
    },
    "load-widths": {
        "kernels": "kernel space kind width_bits level instructions share_pct calls total_ns "
        "source",
        "costs": "kernel calls total_ns share_pct load_bits store_bits verdict bytes at_stake_ns",
    },
    "communication": {
        "collectives": "device_id kind group calls bytes total_ns hidden_ns exposed_ns wait_ns "
        "bus_bytes_per_s rank",
        "ranks": "rank step_median_ns busy_pct exposed_ns wait_ns late_ns cause",
    },
    "trace-health": {},
}
# Those that need one of several sources, and are skipped where a trace has none of them.
NEEDS_A_SOURCE = {"load-widths", "roofline"}
# What the recorder leaves out unless asked.
ON_REQUEST = {
    *("thread_runs", "call_sites", "gpu_metrics", "kernel_counters"),
    *("native_samples", "native_frames"),
    *("os_calls", "python_samples", "python_frames", "host_functions", "jit_compilations"),
    *("source_lines", "python_events"),
    *("collective_calls", "communicators"),
}
VERDICTS = {
    *("gpu-bound", "launch-bound", "sync-drained", "dependency-bound", "queue-full", "mixed"),
    "unknown",
}
IMPERATIVES = re.compile(
    # Only if it repeats: then the verb follows.
    r"(?=[A-Z])(If [^,]* this( too)?, )?"
    r"(?i:Allocate|Build|Check|Exchange|Export|Fuse|Give|Import|Instantiate|Keep|Load|Launch|Look|Make|Overlap|Pin|Raise|Read|Record|Remove|Spread|Start|Replay|Take|Update"
    r"|Upload|Use|Warm)\b"
    # A command to type is an action, too.
    r"|(traceview|nsys|pip) [a-z]"
)

each = pytest.mark.parametrize("analysis", ALL, ids=lambda analysis: analysis.name)


def two_of_everything() -> Export:
    """Two processes with the same correlation ids, two GPUs, two streams, and every operation."""
    export = Export()
    for process in (1, 2):
        at = {"process": process, "device": process - 1}
        export.range("all", 0, 10_000_000, process=process)
        for step in range(4):
            start = 10_000 + step * 1_000_000
            export.range(f"step_{step}", start, start + 900_000, process=process)
            export.copy((start, start + 9_000), (start + 1_000, start + 8_000), **at)
            work = 'gelu {"bytes": 1000000, "flop": 2000000, "kind": "fp32"}'
            export.range(work, start + 9_500, start + 12_500, process=process)
            export.launch((start + 10_000, start + 12_000), (start + 20_000, start + 90_000), **at)
            other = {"stream": 8, "name": "other<float>(int)", "thread": 1, **at}
            export.launch(
                (start + 13_000, start + 14_000), (start + 30_000, start + 95_000), **other
            )
            export.sync("cudaStreamSynchronize_v3020", start + 15_000, start + 100_000, **at)
            export.set((start + 300_000, start + 301_000), (start + 302_000, start + 303_000), **at)
            graph = (start + 400_000, start + 500_000)
            export.graph_whole((start + 390_000, start + 395_000), graph, **at)
            nodes = [(start + 610_000, start + 640_000), (start + 640_000, start + 700_000)]
            export.graph_launch((start + 600_000, start + 605_000), nodes, **at)
    return export.launch_without_kernel((9_000_000, 9_001_000)).kernel_without_launch(
        (9_100_000, 9_200_000)
    )


@pytest.fixture(scope="module", params=["two_of_everything", *SHIPPED])
def trace(request, unpack, tmp_path_factory):
    if request.param == "two_of_everything":
        return two_of_everything().load(tmp_path_factory.mktemp("built"))
    return load(unpack(request.param))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return two_of_everything().load(tmp_path_factory.mktemp("built"))


def digest(trace) -> str:
    found = hashlib.sha256()
    for name in sorted(trace.tables):
        table = trace.tables[name]
        for column in table.columns:
            if column.dtype == "text":
                texts = table.texts(column.name)
                found.update(texts.codes.tobytes() + repr(list(texts.values)).encode())
            else:
                found.update(table[column.name].tobytes())
    return found.hexdigest()


@each
def test_says_why_when_a_table_is_missing(analysis, built):
    for name in analysis.needs:
        outcome = analysis.run(without(built, name))
        assert isinstance(outcome, Skipped)
        assert name in outcome.reason
        assert TABLES[name].how_to_record in outcome.remedy


@each
def test_needs_no_table_but_those_it_names(analysis, built):
    others = set(TABLES) - set(analysis.needs) - {"devices", "processes", "threads"}
    outcome = analysis.run(without(built, *others))
    assert isinstance(outcome, Result) or analysis.name in NEEDS_A_SOURCE


@each
def test_an_empty_recording_gives_no_finding(analysis, tmp_path):
    empty = Export().load(tmp_path)
    assert set(empty.tables) == set(TABLES) - ON_REQUEST
    outcome = analysis.run(empty)
    assert isinstance(outcome, Result)
    assert not outcome.findings


@each
def test_returns_what_it_declares(analysis, trace):
    outcome = analysis.run(trace)
    if isinstance(outcome, Skipped):
        assert analysis.name in NEEDS_A_SOURCE or not set(analysis.needs) <= set(trace.tables)
        return
    assert set(outcome.tables) == {spec.name for spec in analysis.tables}
    for spec in analysis.tables:
        table = outcome.tables[spec.name]
        assert table.columns == spec.columns
        for column in spec.columns:
            check_column(table, column)


def check_column(table, column) -> None:
    if column.dtype == "text":
        assert isinstance(table.texts(column.name), Texts)
    else:
        assert table[column.name].dtype == np.dtype(column.dtype)
    cells = table.cells(column.name)
    assert column.nullable or None not in cells, f"{column.name} is not declared nullable"
    if column.dtype == "float64":
        assert np.isfinite([cell for cell in cells if cell is not None]).all()
    if column.name.endswith("_pct"):
        assert all(0 <= cell <= 100.000001 for cell in cells if cell is not None)


@each
def test_leaves_the_trace_as_it_was(analysis, trace):
    before = digest(trace)
    analysis.run(trace)
    assert digest(trace) == before


@each
def test_findings_say_how_much_and_what_to_do(analysis, trace):
    outcome = analysis.run(trace)
    if isinstance(outcome, Skipped):
        return
    most = duration_ns(trace) * max(len(trace.devices), 1)
    for finding in outcome.findings:
        assert finding.severity in SEVERITIES
        # What was never recorded has no figure.
        if analysis.name != "trace-health" or finding.time_at_stake_ns:
            assert re.search(r"\d", finding.message), finding.message
        assert IMPERATIVES.match(finding.action), finding.action
        assert 0 <= finding.time_at_stake_ns <= most, finding


def test_some_recording_gives_a_finding(built):
    """Else the test above would check nothing."""
    assert [f for a in ALL if isinstance(r := a.run(built), Result) for f in r.findings]


@each
def test_a_range_around_everything_changes_nothing(analysis, built):
    whole, within = analysis.run(built), analysis.run(built.but(selection=Selection(("all",))))
    if isinstance(whole, Skipped):
        assert within == whole
        return
    assert within.findings == whole.findings
    assert within.summary == whole.summary
    for name, table in whole.tables.items():
        assert list(within.tables[name].rows()) == list(table.rows()), name


@each
def test_a_range_of_nothing_leaves_nothing(analysis, built):
    """Excluding everything gives no figure of the GPU's work; trace-health is of the recording."""
    outcome = analysis.run(built.but(selection=Selection((), ("all",))))
    if analysis.name != "trace-health":
        assert not any(len(table) for table in outcome.tables.values())
        assert not outcome.findings


@each
def test_declares_every_published_column(analysis):
    declared = {spec.name: [column.name for column in spec.columns] for spec in analysis.tables}
    for table, columns in PUBLISHED.get(analysis.name, {}).items():
        assert set(columns.split()) <= set(declared[table])


def test_everything_published_is_there():
    assert set(PUBLISHED) <= {analysis.name for analysis in ALL}


@each
def test_what_is_drawn_exists(analysis):
    specs = {spec.name: spec for spec in analysis.tables}
    for spec in analysis.tables:
        assert set(spec.brief_names) <= {column.name for column in spec.columns}
        assert len(set(spec.brief_names)) == len(spec.brief_names) > 0
    for chart in analysis.charts:
        columns = {column.name for column in specs[chart.table].columns}
        drawn = (chart.label, chart.value, chart.stack, chart.end, chart.value2, chart.end2)
        drawn += (chart.x, chart.run, chart.rise, chart.size, chart.slope, chart.level)
        assert {name for name in drawn if name} <= columns


@each
def test_is_described(analysis):
    assert analysis.question.endswith("?")
    for spec in analysis.tables:
        assert spec.meaning
        assert all(column.meaning for column in spec.columns)


def test_every_file_is_in_the_list():
    # A file or folder of an analysis has `ANALYSIS`; the others are shared, or parts of one.
    files = {
        module.name
        for module in pkgutil.iter_modules(traceview.traces.analyses.__path__)
        if hasattr(import_module(f"traceview.traces.analyses.{module.name}"), "ANALYSIS")
    }
    modules = [analysis.compute.__module__.removesuffix(".analysis") for analysis in ALL]
    listed = [module.rpartition(".")[2] for module in modules]
    assert sorted(files) == sorted(listed)
    assert [a.name for a in ALL] == [module.replace("_", "-") for module in listed]


def test_verdicts_are_those_published(trace):
    outcome = next(a for a in ALL if a.name == "run-ahead").run(trace)
    if isinstance(outcome, Result):
        assert set(outcome.tables["devices"].cells("verdict")) <= VERDICTS


@each
def test_columns_that_add_up_are_numbers(analysis):
    for spec in analysis.tables:
        numbers = {c.name for c in spec.columns if c.dtype in ("int64", "float64")}
        assert set(spec.adds.split()) <= numbers
        assert spec.keep is None or spec.keep.column in numbers

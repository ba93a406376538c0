"""A table that an export lacks was not recorded, or nothing happened."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.trace.nsys.exports import (
    KERNEL,
    META,
    RUNTIME,
    TRACED,
    Row,
    call,
    kernel,
    on_stream,
)
from traceview.traces.trace import Trace

ABSENT, EMPTY = "absent", "empty"


def state(trace: Trace, name: str) -> str:
    return ABSENT if name not in trace.tables else EMPTY if not len(trace.table(name)) else "there"


@pytest.mark.parametrize(
    ("called", "graphs", "expected"),
    [
        ([], 0, EMPTY),
        (["cudaMalloc"], 0, EMPTY),
        (["cudaLaunchKernel_v7000"], 0, ABSENT),
        (["cuLaunchKernelEx"], 1, ABSENT),
        (["cudaGraphLaunch_v10000"], 0, ABSENT),
        (["cudaGraphLaunch_v10000"], 1, EMPTY),
    ],
)
def test_kernels_are_absent_where_calls_launched_some(
    read: Any, called: list[str], graphs: int, expected: str
) -> None:
    tables: dict[str, Sequence[Row]] = {}
    if called:
        tables[RUNTIME] = [call(1, 2, name=at) for at in range(len(called))]
    if graphs:
        tables["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"] = [on_stream(3, 4, graphId=1, graphExecId=2)]
    trace = read(tables, names=dict(enumerate(called)), capture=TRACED)
    assert state(trace, "kernels") == expected


def test_what_did_not_happen_is_empty(read: Any) -> None:
    memory = ("PROCESS_0:COLLECT_GPU_MEMORY_USAGE", "true")
    trace = read({}, capture=[*TRACED, memory])
    names = set(trace.tables) - {"processes", "threads", "devices"}
    assert {name: state(trace, name) for name in names} == dict.fromkeys(names, EMPTY)
    assert len(names) == 10


def test_what_was_not_recorded_is_absent(read: Any) -> None:
    trace = read({}, meta={**META, "EXPORT_SCHEMA_VERSION": "3.7.2"})
    assert set(trace.tables) == {"overheads", "processes", "threads", "devices"}


def test_calls_are_absent_where_work_has_none(read: Any) -> None:
    trace = read({KERNEL: [kernel(1, 2)]}, capture=TRACED)
    assert state(trace, "api_calls") == ABSENT
    assert state(trace, "copies") == EMPTY


def test_an_export_of_all_tables_lacks_only_what_was_not_recorded(read: Any) -> None:
    trace = read({}, capture=TRACED, meta={**META, "EXPORT_PARAM_LAZY": "false"})
    assert set(trace.tables) == {"processes", "threads", "devices"}

"""Sampled GPU metrics of an nsys export, limited to those that the analyses use."""

from __future__ import annotations

import re

import numpy as np

from traceview.errors import TraceFormatError
from traceview.tables import Mask, Table, Texts, object_array
from traceview.tables.numbers import numbered
from traceview.trace.nsys.processes import host_of
from traceview.trace.nsys.rows import Export, ExportTable, Rows, Staged

SAMPLES = ExportTable("GPU_METRICS", ("timestamp", "typeId", "metricId", "value"))
# Matched by name: ids differ between metric sets.
METRICS = {
    "dram-read": re.compile(r"DRAM Read \w+ \[Throughput %\]"),
    "dram-write": re.compile(r"DRAM Write \w+ \[Throughput %\]"),
}
_GPU_BITS = 0xFF


def gpu_metrics(export: Export, devices: Table) -> Staged | None:
    """Samples of METRICS in time order; None if none were recorded.

    Host and GPU are encoded in the bits of the type id.
    """
    if not export.has(SAMPLES.table):
        return None
    wanted = _wanted(export)
    rows = _rows(export)
    if rows is None:
        return None
    device_of = _devices(devices)
    types, type_code = numbered(rows.integer("typeId"))
    metric, device = np.full(len(rows), -1, np.int32), np.full(len(rows), -1, np.int32)
    for code, type_id in enumerate(types.tolist()):
        of_type = type_code == code
        device[of_type] = device_of.get((host_of(type_id), type_id & _GPU_BITS), -1)
        for metric_id, name in wanted.get(type_id, {}).items():
            metric[of_type & (rows.integer("metricId") == metric_id)] = list(METRICS).index(name)
    return _table(rows, metric, device, (metric >= 0) & (device >= 0))


def _rows(export: Export) -> Rows | None:
    try:
        return export.rows(SAMPLES)
    except TraceFormatError as error:
        export.warnings.append(f"the sampled GPU metrics were not read: {error.what}")
        return None


def _wanted(export: Export) -> dict[int, dict[int, str]]:
    """The metrics to keep: by type id, names by metric id."""
    lines = export.database.lines("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName"))
    found: dict[int, dict[int, str]] = {}
    for type_id, metric_id, label in lines:
        if isinstance(type_id, int) and isinstance(metric_id, int):
            for name, pattern in METRICS.items():
                if isinstance(label, str) and pattern.fullmatch(label):
                    found.setdefault(type_id, {})[metric_id] = name
    return found


def _devices(devices: Table) -> dict[tuple[int, int], int]:
    keys = zip(devices["host_id"].tolist(), devices["device_id"].tolist(), strict=True)
    return {key: row for row, key in enumerate(keys)}


def _table(rows: Rows, metric: np.ndarray, device: np.ndarray, kept: Mask) -> Staged:
    time = rows.nullable("timestamp")[kept]
    order = np.argsort(time, kind="stable")
    value = rows.integer("value")[kept].clip(0, 100).astype(np.int16)
    return {
        "time_ns": time[order],
        "device": device[kept][order],
        "metric": Texts(metric[kept][order], object_array(list(METRICS))),
        "value_pct": value[order],
    }

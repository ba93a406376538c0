"""Synchronizations of an nsys export, and the kind of wait of each.

The column `syncType` is unreliable. CUPTI and the export's own table ENUM_CUPTI_SYNC_TYPE define
1 event, 2 stream-wait-event, 3 stream, 4 context. But in exports of nsys 2025.3 (schema 3.20, with
column `deprecatedSyncType`) the rows of cudaStreamSynchronize carry 2, like those of
cudaStreamWaitEvent, and cudaDeviceSynchronize has no row at all. A CPU wait would then count as a
GPU wait. So the API call of a row decides; if it was not recorded, an event wait without an event
is a stream wait.
"""

from __future__ import annotations

import numpy as np

from traceview.tables import NULL, Array, Mask, Texts, object_array
from traceview.trace.nsys.names import first_of, meanings, sync_kinds
from traceview.trace.nsys.rows import ExportTable, Staged
from traceview.trace.nsys.tables import Reader, matched

SYNCHRONIZATIONS = ExportTable(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    ("start", "end", "syncType"),
    ("globalPid", "contextId", "streamId", "correlationId", "eventId"),
)
KIND_OF_CALL = {
    "cudaEventSynchronize": "event",
    "cuEventSynchronize": "event",
    "cudaStreamWaitEvent": "stream-wait-event",
    "cuStreamWaitEvent": "stream-wait-event",
    "cudaStreamSynchronize": "stream",
    "cuStreamSynchronize": "stream",
    "cudaDeviceSynchronize": "context",
    "cuCtxSynchronize": "context",
}
# CUPTI_SYNCHRONIZATION_INVALID_VALUE, unsigned.
NOTHING = 0xFFFFFFFF


def synchronizations(reader: Reader, calls: Staged | None) -> Staged | None:
    """Synchronizations in file order; `calls` are the staged API calls, if recorded."""
    rows = reader.export.rows(SYNCHRONIZATIONS)
    if rows is None:
        return None
    process = reader.owners.processes(rows)
    correlation = rows.nullable("correlationId")
    stream = rows.nullable("streamId")
    staged: Staged = {
        **rows.span(),
        "process": process,
        "context_id": rows.identity("contextId"),
        "stream_id": np.where(stream == NOTHING, NULL, stream),
        "correlation_id": correlation,
    }
    numbered = meanings(rows.integer("syncType"), sync_kinds(reader.export.database))
    no_event = rows.integer("eventId") == NOTHING
    kinds = _without_event(numbered, no_event)
    staged["kind"] = first_of(_kinds_by_call(staged, calls), kinds) if calls else kinds
    return staged


def _without_event(kinds: Texts, no_event: Mask) -> Texts:
    """Reclassify event waits without an event as stream waits."""
    wrong = kinds.isin(["stream-wait-event"]) & no_event
    stream = Texts(np.where(wrong, np.int32(0), np.int32(-1)), object_array(["stream"]))
    return first_of(stream, kinds)


def _kinds_by_call(staged: Staged, calls: Staged) -> Texts:
    """The kind implied by the API call of each row; absent without such a call."""
    names = calls["name"]
    assert isinstance(names, Texts)
    of_call = names.map([KIND_OF_CALL.get(name) for name in names.values])
    waits = np.flatnonzero(of_call.codes >= 0)
    owner, key = _array(calls["process"])[waits], _array(calls["correlation_id"])[waits]
    process, correlation = _array(staged["process"]), _array(staged["correlation_id"])
    rows = matched(process, correlation, owner, key)
    codes = np.append(of_call.codes[waits], np.int32(-1))[rows]
    return Texts(codes, of_call.values)


def _array(values: Array | Texts) -> Array:
    assert not isinstance(values, Texts)
    return values

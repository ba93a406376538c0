"""What Perfetto's own trace processor reads from an exported recording."""

import numpy as np
import pytest

from tests.oracles.trace_processor import trace_processor
from traceview import load
from traceview.traces.facts.kernel_classes import KernelClass, kernel_classes
from traceview.traces.facts.operations import operations
from traceview.traces.timeline.perfetto import perfetto_pieces
from traceview.traces.timeline.timeline import timeline

WORK = "from slice s join track t on s.track_id = t.id where t.name glob 'Stream *'"
FLOWS = "from flow f join slice c on f.slice_out = c.id join slice k on f.slice_in = k.id"
DEPTH = "from counter c join counter_track t on c.track_id = t.id where t.name = 'Queue depth'"
THREADS = "select tid from thread where tid > 0 and utid in (select utid from thread_track)"


@pytest.mark.programs
@pytest.mark.parametrize("name", ["mlp_sync", "two_processes"])
def test_the_trace_processor_agrees(name, unpack):
    trace = load(unpack(name))
    whole, ops = timeline(trace), operations(trace)
    busy_ns = int(ops.duration_ns.sum())
    calls = trace.api_calls["start_ns"][ops.call[ops.launched]]
    late = int((ops.start_ns[ops.launched] - calls).sum())
    most = max(int(c.value.max()) for c in whole.counters if c.title == "Queue depth")
    gemms = int((kernel_classes(trace) == KernelClass.GEMM).sum())
    used = np.unique([lane.thread for lane in whole.lanes if lane.thread >= 0])
    with trace_processor(b"".join(perfetto_pieces(trace, whole))) as processor:
        rows = processor.rows
        assert rows("select name from stats where value > 0 and severity != 'info'") == []
        assert rows("select count(*) from slice") == [(sum(map(len, whole.tracks)),)]
        assert rows(f"select count(*), sum(s.dur) {WORK}") == [(len(ops), busy_ns)]
        assert rows(f"select count(*), sum(k.ts - c.ts) {FLOWS}") == [(len(calls), late)]
        assert rows(f"select max(c.value) {DEPTH}") == [(most,)]
        assert rows("select count(*) from slice where category = 'kernel-gemm'") == [(gemms,)]
        tids = sorted(tid for (tid,) in rows(THREADS))
        assert tids == sorted(trace.threads["thread_id"][used].tolist())

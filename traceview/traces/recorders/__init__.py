"""Record programs: find nsys, run a program under it, export the trace.

The package is not called `record`: a subpackage of that name would replace the function
`traceview.record` as soon as it is imported.
"""

from traceview.traces.recorders.checks import MachineCheck, check_machine
from traceview.traces.recorders.job import Recording
from traceview.traces.recorders.local_ranks import RankRecordings, record_ranks
from traceview.traces.recorders.nsys import export_report
from traceview.traces.recorders.options import RecordOptions
from traceview.traces.recorders.recording import record

__all__ = [
    "MachineCheck",
    "RankRecordings",
    "RecordOptions",
    "Recording",
    "check_machine",
    "export_report",
    "record",
    "record_ranks",
]

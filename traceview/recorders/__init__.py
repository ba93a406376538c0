"""Recordings: find nsys, run a program under it, export what it recorded."""

from traceview.recorders.checks import MachineCheck, check_machine
from traceview.recorders.export import export_report
from traceview.recorders.options import RecordOptions
from traceview.recorders.recording import Recording, record

__all__ = ["MachineCheck", "RecordOptions", "Recording", "check_machine", "export_report", "record"]

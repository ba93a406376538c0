"""Recordings: find nsys, run a program under it, export what it recorded."""

from traceview.recorders.checks import Check, check_machine
from traceview.recorders.export import export_report
from traceview.recorders.options import Choices
from traceview.recorders.recording import Recording, record

__all__ = ["Check", "Choices", "Recording", "check_machine", "export_report", "record"]

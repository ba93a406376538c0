"""Names of GPUs in sentences, and GPUs as the subject of a finding."""

from __future__ import annotations

from traceview.facts.operations.hosts import device_hosts
from traceview.findings import Subject
from traceview.tables import NULL
from traceview.trace import Trace


def gpu_name(trace: Trace, device: int) -> str:
    """`GPU 0`, or `GPU 0 of host 3` where a trace holds several machines.

    `device` is a row of devices.
    """
    host = int(device_hosts(trace)[device])
    machine = "" if host == NULL else f" of host {host}"
    return f"GPU {trace.devices['device_id'][device]}{machine}"


def gpu_subject(trace: Trace, device: int) -> Subject:
    """A GPU, by its row in devices, as the subject of a finding."""
    return Subject("device", gpu_name(trace, device))

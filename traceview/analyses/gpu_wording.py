"""Names of GPUs in sentences, and GPUs as the subject of a finding."""

from __future__ import annotations

from traceview.facts.operations.hosts import device_hosts
from traceview.findings import Severity, Subject, severity_of
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


def gain_sentence(saved_ns: int, gain_ns: int) -> str:
    """A sentence on the gain of a faster kernel, where the CPU leaves less than half of it.

    `gain_ns` is the gain if the CPU launched all work in time. The sentence follows one on the loss
    and takes `saved_ns` from the values.
    """
    if 2 * saved_ns >= gain_ns:
        return ""
    gains = "{saved_ns} at most" if saved_ns else "nothing"
    return (
        " The GPU waits for the CPU between launches, so the program gains "
        f"{gains} until the CPU launches sooner."
    )


def severity_of_part(saved_ns: int, lost_ns: int, span_ns: int) -> Severity | None:
    """Severity of what can be saved of a loss; `info` where only the loss is worth a finding."""
    severity = severity_of(saved_ns, span_ns)
    return "info" if severity is None and severity_of(lost_ns, span_ns) else severity

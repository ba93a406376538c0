"""The head of every report: facts about the recording, as names and values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from pathlib import PurePath

from traceview import analyses, units
from traceview.report import RecordedGpu, RecordedProcess, Report, TraceFacts

_MOST_NAMED = 4
_ON_GPU = ("kernels", "copies", "sets", "graph_launches")
_COUNTED = {
    "kernels": ("kernel", "kernels"),
    "copies": ("copy", "copies"),
    "sets": ("memset", "memsets"),
    "graph_launches": ("graph launch", "graph launches"),
    "api_calls": ("API call", "API calls"),
    "ranges": ("range", "ranges"),
}


def header_facts(trace: TraceFacts) -> list[tuple[str, str]]:
    """The recorded facts, as pairs of name and value."""
    hosts = {gpu.host_id for gpu in trace.gpus} | {each.host_id for each in trace.processes}
    facts = [
        ("recorded by", _recorder(trace)),
        ("GPU", _listed(Counter(_gpu(gpu) + _on(gpu.host_id, hosts) for gpu in trace.gpus))),
        (
            "process",
            _listed(Counter(_process(each) + _on(each.host_id, hosts) for each in trace.processes)),
        ),
        ("duration", units.duration(trace.duration_ns)),
        ("contains", _rows(trace)),
        ("only ranges", ", ".join(trace.selection.include)),
        ("without ranges", ", ".join(trace.selection.exclude)),
        ("strict", "no range is inferred" if trace.strict else ""),
        ("peaks given", ", ".join(f"{name}={value:g}" for name, value in trace.peaks.items())),
    ]
    return [(name, value) for name, value in facts if value]


def _recorder(trace: TraceFacts) -> str:
    schema = trace.export_schema_version
    words = (trace.recorder, trace.recorder_version or "", f"(schema {schema})" if schema else "")
    return " ".join(word for word in words if word)


def _gpu(gpu: RecordedGpu) -> str:
    details = [f"compute capability {gpu.compute_capability}"] if gpu.compute_capability else []
    details += [f"{gpu.sm_count} SMs"] if gpu.sm_count is not None else []
    name = gpu.name or "GPU of unknown model"
    return f"{name} ({', '.join(details)})" if details else name


def _process(process: RecordedProcess) -> str:
    """Name and id of a process; if the recorder gives a path, its last part."""
    if not process.name:
        return f"process {process.process_id}"
    return f"{PurePath(process.name).name} ({process.process_id})"


def _on(host: int, hosts: Set[int]) -> str:
    return f" on host {host}" if len(hosts) > 1 else ""


def _listed(named: Counter[str]) -> str:
    names = [f"{times} × {name}" if times > 1 else name for name, times in named.items()]
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _rows(trace: TraceFacts) -> str:
    return ", ".join(
        units.counted(trace.row_counts[table], *words)
        for table, words in _COUNTED.items()
        if trace.row_counts.get(table)
    )


def nothing_found(report: Report) -> str:
    """The sentence to show if there are no findings."""
    if not any(report.trace.row_counts.get(name) for name in _ON_GPU):
        return (
            "No GPU work was recorded, so there is no GPU time to save. If the program should "
            "use a GPU, check that it finds one (PyTorch: torch.cuda.is_available()), and run "
            "traceview doctor."
        )
    where = " in the selected ranges" if report.trace.selection else ""
    if len(report.analyses) < len(analyses.ALL):
        return f"Nothing found{where} by {', '.join(report)}; the whole report asks more."
    return f"Nothing found{where} that would save time."

"""Which tables an export lacks because nothing happened, and which because nobody looked.

The exporter leaves out what has no rows. Whether it was recorded at all has to be inferred from
the options of the recorder and from what else is there.
"""

from __future__ import annotations

from collections.abc import Mapping

from traceview.tables import Table
from traceview.trace.nsys.export_info import DIAGNOSTICS_SINCE, ExportMeta
from traceview.trace.nsys.rows import Export
from traceview.trace.nsys.sync_sites import NOTED

ON_GPU = ("kernels", "copies", "sets", "graph_launches")
_STORED_AS = {
    "kernels": ("CUPTI_ACTIVITY_KIND_KERNEL",),
    "copies": ("CUPTI_ACTIVITY_KIND_MEMCPY",),
    "sets": ("CUPTI_ACTIVITY_KIND_MEMSET",),
    "graph_launches": ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE",),
    "api_calls": ("CUPTI_ACTIVITY_KIND_RUNTIME",),
    "synchronizations": ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",),
    "ranges": ("NVTX_EVENTS",),
    "call_sites": ("NVTX_EVENTS",),
    "memory_events": ("CUDA_GPU_MEMORY_USAGE_EVENTS",),
    "overheads": ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"),
    "diagnostics": ("DIAGNOSTIC_EVENT",),
}
_KERNEL_LAUNCHES = (
    "cudaLaunchKernel",
    "cuLaunchKernel",
    "cudaLaunchCooperativeKernel",
    "cuLaunchCooperativeKernel",
)
_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")


def empty_tables(export: Export, meta: ExportMeta, done: Mapping[str, Table]) -> list[str]:
    """The tables to take as empty, among those that are not in `done`."""
    if not meta.lazy:
        return []
    nothing = {
        "ranges": meta.captured("NvtxEvents"),
        "call_sites": meta.captured("NvtxEvents") and NOTED in meta.run,
        "memory_events": meta.capture.get("PROCESS_0:COLLECT_GPU_MEMORY_USAGE") == "true",
        "overheads": True,
        "diagnostics": (meta.schema_number or (0, 0)) >= DIAGNOSTICS_SINCE,
        **(_cuda(done) if _cuda_traced(export, meta) else {}),
    }
    return [
        name
        for name, empty in nothing.items()
        if empty and name not in done and not export.unusable.intersection(_STORED_AS[name])
    ]


def _cuda_traced(export: Export, meta: ExportMeta) -> bool:
    there = any(table.startswith("CUPTI_ACTIVITY_KIND_") for table in export.database.tables)
    return there or meta.captured("Cuda")


def _cuda(done: Mapping[str, Table]) -> dict[str, bool]:
    worked = any(len(done[name]) for name in ON_GPU if name in done)
    return {
        **dict.fromkeys(("copies", "sets", "synchronizations", "graph_launches"), True),
        # Work on a GPU that no call asked for: the calls were not recorded.
        "api_calls": not worked,
        "kernels": not _kernels_missing(done),
    }


def _kernels_missing(done: Mapping[str, Table]) -> bool:
    """Whether calls launched kernels that are not there."""
    if "api_calls" not in done:
        return False
    names = done["api_calls"].texts("name")
    used = {str(names.values[code]) for code in set(names.codes[names.codes >= 0].tolist())}
    if any(name.startswith(_KERNEL_LAUNCHES) for name in used):
        return True
    # Graphs that were recorded whole stand for their kernels.
    whole = "graph_launches" in done and len(done["graph_launches"]) > 0
    return not whole and any(name.startswith(_GRAPH_LAUNCHES) for name in used)

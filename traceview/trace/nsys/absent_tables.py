"""Tables missing from an export: empty because nothing happened, or not recorded.

The exporter leaves out tables without rows. Whether one was recorded is inferred from the options
of the recorder and from the other tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from traceview import groups
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


def empty_tables(export: Export, meta: ExportMeta, present: Mapping[str, Table]) -> list[str]:
    """Names of tables that are missing from `present` because they would be empty."""
    if not meta.lazy:
        return []
    has_tables = any(table.startswith("CUPTI_ACTIVITY_KIND_") for table in export.database.tables)
    nothing = {
        "ranges": meta.captured("NvtxEvents"),
        "call_sites": meta.captured("NvtxEvents") and NOTED in meta.run,
        "memory_events": meta.capture.get("PROCESS_0:COLLECT_GPU_MEMORY_USAGE") == "true",
        "overheads": True,
        "diagnostics": (meta.schema_number or (0, 0)) >= DIAGNOSTICS_SINCE,
        **(_cuda(present) if (has_tables or meta.captured("Cuda")) else {}),
    }
    return [
        name
        for name, empty in nothing.items()
        if empty and name not in present and name not in unread_tables(export)
    ]


def unread_tables(export: Export) -> dict[str, str]:
    """Tables that the export has in a form that cannot be read, mapped to the reason."""
    return {
        name: export.unusable[stored]
        for name, tables in _STORED_AS.items()
        for stored in tables
        if stored in export.unusable
    }


def _cuda(present: Mapping[str, Table]) -> dict[str, bool]:
    has_work = any(len(present[name]) for name in ON_GPU if name in present)
    return {
        **dict.fromkeys(("copies", "sets", "synchronizations", "graph_launches"), True),
        # GPU work without any API call: the calls were not recorded.
        "api_calls": not has_work,
        "kernels": not _kernels_missing(present),
    }


def _kernels_missing(present: Mapping[str, Table]) -> bool:
    """Whether API calls launched kernels that are not in the trace."""
    if "api_calls" not in present:
        return False
    names = present["api_calls"].texts("name")
    used = {names.value(code) for code in groups.different(names.codes).tolist() if code >= 0}
    if any(name.startswith(_KERNEL_LAUNCHES) for name in used):
        return True
    # Graph launches recorded as a whole stand for their kernels.
    whole = "graph_launches" in present and len(present["graph_launches"]) > 0
    return not whole and any(name.startswith(_GRAPH_LAUNCHES) for name in used)

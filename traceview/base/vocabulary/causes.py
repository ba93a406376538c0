"""The causes of idle time, a record each with all that is said of it, and limits in words.

`facts/idle/causes.py` finds the cause of each gap. A cause is its place in CAUSES there, which fits
in a byte, and its name in every table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from traceview.base.records import record

Limit = Literal[
    "cpu-launch", "gpu-compute", "gpu-memory", "communication", "copies", "synchronization",
    "data-loading", "compilation", "dependency", "mixed", "unknown",
]  # fmt: skip

LOST: Mapping[Limit, str] = {
    "cpu-launch": "waiting for launches",
    "data-loading": "waiting for data",
    "synchronization": "idle after synchronizations",
    "copies": "in copies or waiting for them",
    "communication": "in exposed communication",
    "compilation": "waiting for code to load or compile",
    "dependency": "idle with work already queued",
}
"""What takes the time, behind `GPU busy 37 % · 63 %`. The GPU's own work is none of these."""


@record
class IdleCause:
    """One cause of idle time. A new one needs the first six fields; the others have defaults.

    `meaning` explains it in tables and in the timeline. `colors` are those of a page, light and
    dark. `letter` is its mark in the heat map of ranks, with the legend's words for it. `rank`
    follows `Rank 3 is late:`.

    `lost` follows `The GPU sat idle for 147 ms (135 gaps)`; without it gpu-idle has no finding for
    the cause. `action` is the remedy; a field such as `{memory_pool}` stands for the words of the
    program's framework (SLOTS in gpu_idle/remedies). `once` ends the remedy where one gap
    may be all there is, so that it holds only if the gap comes again; None where one gap suffices.
    `general` says that its idle time is that of many launches: one remedy seldom wins all of it.

    `limit` is the limit that its steady time stands for; `apart` is said behind `30 % of the time`
    where that part has a name of its own. `verdict` is that on a phase in which most idle time is
    of this cause. `idle` follows `The GPU sits idle` in comparisons, `lost` if empty; `counted` is
    the count that rises and falls with it. `on_cpu` says that what the launching thread did
    explains the gap.
    """

    name: str
    meaning: str
    lost: str
    action: str
    letter: tuple[str, str]
    colors: tuple[str, str]
    rank: str = "its GPU is idle"
    idle: str = ""
    limit: Limit = "unknown"
    apart: str = ""
    verdict: str = "mixed"
    counted: str = ""
    once: str | None = None
    general: bool = False
    on_cpu: bool = False


CAUSES: list[IdleCause] = []
"""All causes, in the order in which their findings, colours and columns come."""
CAUSE_NAMES: list[str] = []


def add(cause: IdleCause) -> int:
    """Add a cause. Returns its place in CAUSES."""
    CAUSES.append(cause)
    CAUSE_NAMES.append(cause.name)
    return len(CAUSES) - 1


def sits_idle(name: str) -> str:
    """What follows `The GPU sits idle`; the name itself where another version wrote it."""
    return next((each.idle or each.lost for each in CAUSES if each.name == name), name)


# fmt: off
LAUNCH_LATE = add(IdleCause(
    "launch-late", letter=("l", "CPU late"), colors=("#cf463c", "#f4776c"), limit="cpu-launch",
    verdict="launch-bound", counted="launches", once="", general=True, on_cpu=True,
    lost="waiting for the CPU to launch work",
    meaning="nothing was queued: the CPU had not launched the next work yet",
    action="Launch less often ({fewer_launches}), or {do_elsewhere}.",
))
SYNC_DRAIN = add(IdleCause(
    "sync-drain", letter=("s", "GPU drained by a sync"), colors=("#a12b59", "#e0628f"),
    limit="synchronization", verdict="sync-drained", counted="synchronizations", on_cpu=True,
    meaning="the GPU ran dry in or right after a synchronization, and the CPU launched the next "
    "work only after it",
    # Synchronizations within the selection are findings of sync-stalls.
    lost="after synchronizations outside the selected ranges",
    action="Look at sync-stalls of the whole recording: that synchronization is outside the "
    "selected ranges.",
    idle="after synchronizations",
    rank="its GPU runs dry after a synchronization",
))
DEPENDENCY = add(IdleCause(
    "dependency", letter=("d", "queued work waits"), colors=("#c78585", "#b98080"),
    general=True, limit="dependency", verdict="dependency-bound",
    meaning="the next work was queued but waited for another stream or an event, or for the GPU to "
    "move on to it",
    lost="with work already queued",
    action="Look at what the work waited for: another stream or an event.",
    rank="its GPU starts queued work late",
))
COPY_WAIT = add(IdleCause(
    "copy-wait", letter=("m", "copies"), colors=("#d8b75c", "#b59a4c"), limit="copies", once="",
    meaning="the next work was queued behind a copy, or was a copy whose bytes the CPU first had "
    "to move out of pageable memory",
    lost="waiting for memory copies",
    action="{early_uploads}, on a stream of its own; copy on the GPU itself where that is "
    "possible.",
    idle="waiting for copies",
    rank="its GPU waits for copies",
))
GRAPH_LAUNCH = add(IdleCause(
    "graph-launch", letter=("l", "CPU late"), colors=("#de7445", "#f0916a"), limit="cpu-launch",
    verdict="launch-bound", once="", on_cpu=True,
    meaning="the CPU spent most of the gap launching, instantiating or uploading the CUDA graph "
    "that came next",
    lost="while the CPU launched, instantiated or uploaded the next CUDA graph",
    action="Instantiate and upload CUDA graphs before the loop, and launch the next one while the "
    "last still runs.",
    idle="while the CPU launches CUDA graphs",
    rank="it launches a CUDA graph",
))
JIT_COMPILE = add(IdleCause(
    "jit-compile", letter=("k", "compilation"), colors=("#7d5a52", "#a67a70"), limit="compilation",
    on_cpu=True,
    meaning="the driver spent most of the gap compiling PTX for this GPU",
    lost="while the driver compiled PTX",
    action="Build the code for this GPU (nvcc -gencode, TORCH_CUDA_ARCH_LIST), so that the driver "
    "does not compile PTX when the program runs, and keep its cache (CUDA_CACHE_MAXSIZE).",
    idle="while the driver compiles PTX",
    rank="the driver compiles its kernels",
))
MODULE_LOAD = add(IdleCause(
    "module-load", letter=("k", "compilation"), colors=("#9c6f66", "#c0948b"), limit="compilation",
    on_cpu=True,
    meaning="the CPU spent most of the gap loading GPU code",
    lost="while the CPU loaded GPU code",
    action="Warm up before the loop, so that code is loaded there (or set "
    "CUDA_MODULE_LOADING=EAGER).",
    idle="while the CPU loads GPU code",
    rank="it loads kernels",
))
ALLOCATION = add(IdleCause(
    "allocation", letter=("a", "allocation"), colors=("#dd85a8", "#e8a0bd"), limit="cpu-launch",
    counted="allocations", once=". A pool does this once, when it first grows", on_cpu=True,
    meaning="the CPU spent most of the gap allocating or freeing memory",
    lost="while the CPU allocated or freed memory",
    action="Allocate before the loop, or through a pool ({memory_pool}).",
    idle="while the CPU allocates or frees memory",
    rank="its CPU allocates memory",
    apart="allocating or freeing memory",
))
PROFILER = add(IdleCause(
    "profiler", letter=("p", "profiler"), colors=("#a3a8ae", "#6f7780"), on_cpu=True,
    meaning="the profiler held the CPU up for most of the gap",
    lost="while the profiler held the CPU up",
    action="Record with fewer options; this time is the profiler's own.",
    idle="held up by the profiler",
    rank="the profiler holds it up",
))
GARBAGE_COLLECTION = add(IdleCause(
    "garbage-collection", letter=("z", "garbage collection"), colors=("#8fa35a", "#a9bd74"),
    limit="cpu-launch", once="", on_cpu=True,
    meaning="Python collected garbage for most of the gap",
    lost="while Python collected garbage",
    action="Call gc.freeze() once model and data are set up, so that collections skip them, or "
    "gc.disable(), and gc.collect() between epochs; make fewer objects in reference cycles.",
    idle="while Python collects garbage",
    rank="its Python collects garbage",
    apart="collecting garbage in Python",
))
PAGE_MIGRATION = add(IdleCause(
    "page-migration", letter=("m", "copies"), colors=("#b3a04a", "#c9b768"), limit="copies",
    once="",
    meaning="pages of unified memory moved meanwhile: the CPU touched pages on the GPU, or work "
    "waited for pages that were prefetched",
    lost="while pages of unified memory moved",
    action="Prefetch what the CPU or the GPU uses next (cudaMemPrefetchAsync), earlier and on a "
    "stream of its own, or keep it on the GPU and copy it.",
    idle="while pages of unified memory move",
    rank="pages of its unified memory move",
))
# A finding of phases.
COMPILATION = add(IdleCause(
    "compilation", letter=("k", "compilation"), colors=("#8a7fc7", "#a79ee0"), limit="compilation",
    on_cpu=True,
    meaning="a compiler worked for most of the gap, or a library tried algorithms (phases)",
    lost="",
    action="",
    idle="during compilation or autotuning",
    rank="it compiles code",
))
# Where much was lost, `of_unknown` of gpu_idle/findings.py says so.
LOST_WORK = add(IdleCause(
    "lost-work", letter=("x", "work not recorded"), colors=("#d6d9dd", "#3f464e"),
    verdict="unknown",
    meaning="launches were made for which no work was recorded: it may have run in the gap",
    lost="",
    action="",
    idle="as far as recorded: GPU work was lost",
    rank="work of its GPU is missing in the recording",
))
UNKNOWN = add(IdleCause(
    "unknown", letter=("u", "unknown cause"), colors=("#c2c7cd", "#4d555e"),
    meaning="the launch call of the next work was not recorded",
    lost="before work whose launch call was not recorded",
    action="Record the CUDA API too (--trace=cuda), so that the launch calls are known.",
    idle="for an unknown cause",
))
FIRST_USES = (MODULE_LOAD, JIT_COMPILE, COMPILATION, ALLOCATION)
"""What a first use of code or memory costs."""

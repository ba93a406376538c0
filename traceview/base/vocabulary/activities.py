"""What a launching thread did while the GPU was idle: a record each, with all that is said of it.

`facts/samples.py` and `facts/idle/lines.py` find the activity of each sample. An
activity is its place in ACTIVITIES there, and its name in every table.
"""

from __future__ import annotations

from traceview.base.records import record
from traceview.base.vocabulary.causes import Limit


@record
class Activity:
    """One activity of a CPU thread other than launching.

    `lost` says how the GPU lost time meanwhile, behind `The GPU sat idle for 147 ms (135 gaps)`;
    without it gpu-idle has no finding for it. `amount` names its time where another finding leaves
    it out. `action` is the remedy; `by_frame` are remedies that replace it where most of the time
    passed in stacks with a frame such as `torch/serialization.py::save`, which the pattern before
    each remedy finds. Measured on one H200, steps with and without the remedy: docs/accuracy.md.

    `os_calls` matches the calls of the operating system that block for it. `says_enough` says that
    the library function in which the time passed would add nothing. `limit`
    is the limit that launches late by it stand for; `apart` is said behind `30 % of the time` where
    that part has a name of its own. `rank` follows `its CPU`; without it the activity does not tell
    why a rank is late. `colors` are those of a page, light and dark.
    """

    name: str
    lost: str = ""
    amount: str = ""
    action: str = ""
    by_frame: tuple[tuple[str, str], ...] = ()
    os_calls: str = ""
    says_enough: bool = False
    limit: Limit = "cpu-launch"
    apart: str = ""
    rank: str = ""
    colors: tuple[str, str] | None = None


ACTIVITIES: list[Activity] = []
ACTIVITY_NAMES: list[str] = []
_WAITS, _LOADS, _READS = ("#c2c7cd", "#4d555e"), ("#e5a06b", "#a8693b"), ("#c9b29a", "#70604e")


def add(activity: Activity) -> int:
    """Add an activity. Returns its place in ACTIVITIES."""
    ACTIVITIES.append(activity)
    ACTIVITY_NAMES.append(activity.name)
    return len(ACTIVITIES) - 1


# fmt: off
CPU = add(Activity(
    "cpu", colors=("#d9cdb4", "#5c543f"),
    lost="while the CPU did other work than launching",
    amount="other CPU work",
))
TENSORS = add(Activity(
    "tensors", colors=("#d9cdb4", "#5c543f"), rank="computes with torch",
    lost="while torch computed on the CPU",
    amount="computing with torch on the CPU",
    apart="waiting while torch computes on the CPU",
    action="Compute this on the GPU: move its tensors there first. Or compute it ahead, in "
    "DataLoader workers.",
))
SLEEP = add(Activity(
    "sleep", colors=_WAITS, rank="sleeps", os_calls="(clock_)?nanosleep|u?sleep",
    lost="while the CPU slept",
    amount="sleeping",
    apart="waiting while the CPU sleeps",
    action="Remove the sleep, or wait on a thread that launches nothing.",
))
DATA_WAIT = add(Activity(
    "data-wait", limit="data-loading", says_enough=True, colors=_LOADS,
    rank="waits for the data loader",
    lost="while the program waited for the DataLoader's workers",
    amount="waiting for the DataLoader",
    action="Raise num_workers of that DataLoader or make its transforms cheaper (smaller images, "
    "work on the GPU). Where it has workers, persistent_workers=True keeps them between epochs.",
    by_frame=(
        (r"/multiprocessing/popen_\w+\.py::",
         "Keep the DataLoader's workers between epochs (persistent_workers=True): each epoch "
         "starts them again, which takes longer with more workers."),
    ),
))
DATA_LOADING = add(Activity(
    "data-loading", limit="data-loading", says_enough=True, colors=_LOADS, rank="loads data",
    lost="while the launching process loaded data itself",
    amount="loading data",
    action="Load in worker processes: DataLoader(num_workers=…, pin_memory=True).",
    by_frame=(
        # Measured: four workers 11.6 instead of 11.2 ms per step, batches made once 7.0
        # (docs/accuracy.md, GIN on small graphs).
        (r"(?:site|dist)-packages/torch_geometric/(?:loader/dataloader\.py::__call__"
         r"|data/collate\.py::)",
         "Make the batches once and keep them, on the GPU where they fit, if every epoch may use "
         "the same ones: workers send graphs tensor by tensor, which takes about as long as "
         "batching them."),
    ),
))
LOCK = add(Activity(
    "lock", colors=_WAITS, rank="waits for a lock",
    os_calls=r"pthread_(mutex|rwlock|spin)_\w*lock|pthread_cond_\w*wait|sem_\w*wait|pthread_join"
    r"|futex|flock",
    lost="while the launching thread waited for another thread",
    amount="waiting for other threads",
    apart="waiting for another thread",
    action="Look at what the other thread does while this one waits, and start it earlier.",
))
PROCESS = add(Activity(
    "process", colors=_WAITS, rank="waits for another process",
    os_calls=r"p?poll|p?select|epoll_p?wait|recv\w*|accept4?|connect|waitpid|wait[34]|waitid",
    lost="while the launching thread waited for another process or a socket",
    amount="waiting for other processes",
    apart="waiting for another process or a socket",
    action="Look at what the other process does meanwhile, and start it earlier.",
))
MESSAGE = add(Activity(
    "message", limit="communication", colors=_WAITS, rank="waits for messages of MPI",
    lost="while the launching thread was in calls of MPI",
    amount="calls of MPI",
    apart="in calls of MPI",
    action="Send fewer and larger messages: each takes its latency, whatever its size. Or work "
    "meanwhile: MPI_Isend and MPI_Irecv early, MPI_Wait as late as possible.",
))
FILE = add(Activity(
    "file", colors=_READS, rank="reads or writes files",
    os_calls="p?readv?(64)?|p?writev?(64)?|f?open(at)?(64)?|f(data)?sync|fread|fwrite|sendfile(64)?",
    lost="while the CPU read or wrote files",
    amount="reading or writing files",
    apart="waiting while the CPU reads or writes files",
    action="Read ahead on another thread or from memory, and write outside of the loop.",
    by_frame=(
        (r"torch/serialization\.py::save$",
         "Save less often, or copy into pinned memory and write on another thread "
         "(torch.distributed.checkpoint.async_save)."),
    ),
))
IMPORT = add(Activity(
    "import", says_enough=True, colors=_READS, rank="imports modules",
    lost="while the CPU imported modules",
    amount="importing",
    apart="waiting while the CPU imports modules",
    action="Import before the loop.",
))
# A finding of phases.
COMPILATION = add(Activity(
    "compilation", limit="compilation", colors=("#b98e85", "#8a635b"), rank="compiles code",
))
OFF_CPU = add(Activity(
    "off-cpu",
    lost="while the launching thread was not running",
    amount="time off the CPU",
    apart="the launching thread was not running",
    action="Find what the thread waits for (lock, I/O, sleep, or a camera or display that sets "
    "the pace), or whether it is preempted.",
))
RESULT_WAIT = add(Activity(
    "result-wait", limit="synchronization", says_enough=True, colors=_WAITS,
    rank="waits for results of JAX",
    lost="after the program waited for results of JAX",
    amount="idle time after waits for results",
    apart="idle after waits for results",
    action="Wait for results less often, such as once per epoch, so that the CPU launches ahead of "
    "the GPU. Such a wait makes no CUDA call, so sync-stalls does not count it.",
))
PAGES = add(Activity(
    "pages", colors=_WAITS, rank="waits for pages of unified memory",
    lost="while the CPU touched pages of unified memory, and waited for them",
    amount="waiting for pages of unified memory",
    apart="waiting while the CPU touches pages of unified memory",
    action="Keep what the CPU writes and reads between launches in memory of its own, and copy it: "
    "each page that it touches after the GPU, or for the first time, holds it up.",
))

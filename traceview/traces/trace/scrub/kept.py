"""What a scrubbed trace keeps: tables, columns and words, each column with what it may hold.

Whatever is not listed here is left out, so a table or column that a new recorder adds is private
until a reader needs it. A test compares the list with what the readers read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto

from traceview.base.records import record
from traceview.traces.trace.nsys import added_tables, cpu_calls, processes, ranges, tables
from traceview.traces.trace.nsys.export_info import META_TABLES
from traceview.traces.trace.nsys.nccl_calls import ENTRIES
from traceview.traces.trace.schema import TABLES
from traceview.traces.trace.stored import ABOUT, NUMBERED, RUN, TEXTS


class TextKind(Enum):
    """What a column may hold, apart from NULL."""

    NUMBER = auto()
    KERNEL = auto()  # Name of a kernel.
    RANGE = auto()  # Name of an NVTX range, mark or domain.
    FUNCTION = auto()  # Name of a Python function.
    SYMBOL = auto()  # Name of a C or C++ function.
    CALL = auto()  # Name of an API function, or of an activity of the recorder.
    FILE = auto()  # Path of a source file.
    MODULE = auto()  # Path of an executable or shared library, or the name of a process.
    SOURCE = auto()  # Text of a source file.
    WORDS = auto()  # Public words: see vocabulary.
    MESSAGE = auto()  # A sentence of a recorder, of public words and numbers.
    STACK = auto()  # JSON of a Python stack, or of a call of NCCL.
    PAYLOAD = auto()  # Binary payload of a call of NCCL.
    FIELD = auto()  # Name of a field in such a payload.
    CODE_FACT = auto()  # A hash, an architecture, or JSON of parameters and options of a kernel.
    PTX = auto()
    CUBIN = auto()


@record
class Kept:
    """A kept column: its kind, and whether it holds the number of a text in the table of texts."""

    kind: TextKind
    by_number: bool = False


_NUMBER = Kept(TextKind.NUMBER)
_EXPORT_TABLES = (
    *(tables.KERNELS, tables.COPIES, tables.SETS, tables.GRAPH_LAUNCHES, tables.API_CALLS),
    *(tables.MEMORY_EVENTS, tables.PROFILER_OVERHEADS, tables.CUPTI_OVERHEADS, tables.DIAGNOSTICS),
    *(cpu_calls.SYNCHRONIZATIONS, ranges.RANGES, ranges.PAYLOADS, added_tables.MARKS),
    *ranges.MPI_CALLS,
    *(cpu_calls.OS_CALLS, cpu_calls.CALLCHAINS, cpu_calls.SCHEDULING, tables.METRIC_SAMPLES),
    *(cpu_calls.ON_STREAM, cpu_calls.ON_THREAD, cpu_calls.JIT),
    *(cpu_calls.NATIVE_SAMPLES, cpu_calls.SAMPLED_FRAMES, cpu_calls.OS_FRAMES),
    *(added_tables.OWN_SAMPLES, added_tables.OWN_FRAMES, added_tables.OWN_EVENTS),
)
# Columns of these tables that hold texts, or their numbers; all others are numbers.
_TEXTS_OF_EXPORT: Mapping[str, Kept] = {
    "demangledName": Kept(TextKind.KERNEL, True),
    "shortName": Kept(TextKind.KERNEL, True),
    "mangledName": Kept(TextKind.KERNEL, True),
    "nameId": Kept(TextKind.CALL, True),
    "textId": Kept(TextKind.RANGE, True),
    "jsonTextId": Kept(TextKind.STACK, True),
    "symbol": Kept(TextKind.SYMBOL, True),
    "module": Kept(TextKind.MODULE, True),
    "jsonText": Kept(TextKind.STACK),
    "file": Kept(TextKind.FILE),
    "function": Kept(TextKind.FUNCTION),
    "kind": Kept(TextKind.WORDS),
    "source": Kept(TextKind.SOURCE),
    "reason": Kept(TextKind.SOURCE),
}
_TEXT = {
    tables.DIAGNOSTICS.table: Kept(TextKind.MESSAGE),
    ranges.RANGES.table: Kept(TextKind.RANGE),
}


def _of_exports() -> dict[str, dict[str, Kept]]:
    kept: dict[str, dict[str, Kept]] = {}
    for source in _EXPORT_TABLES:
        for name in (*source.required, *source.optional, *source.texts):
            plain = _TEXT[source.table] if name == "text" else _TEXTS_OF_EXPORT.get(name, _NUMBER)
            kept.setdefault(source.table, {})[name] = plain
    kept[ranges.RANGES.table]["binaryData"] = Kept(TextKind.PAYLOAD)
    kept["CUPTI_ACTIVITY_KIND_RUNTIME"]["returnValue"] = _NUMBER
    return kept


def _numbers(*names: str) -> dict[str, Kept]:
    return dict.fromkeys(names, _NUMBER)


_ENUMERATION = {"id": _NUMBER, "name": Kept(TextKind.WORDS), "label": Kept(TextKind.WORDS)}
# Small tables, which are read row by row.
_LISTED: Mapping[str, Mapping[str, Kept]] = {
    "TARGET_INFO_GPU": {
        **_numbers("vmId", "id", "deviceId", "computeMajor", "computeMinor"),
        **_numbers(*processes.GPU_COLUMNS.values()),
        "name": Kept(TextKind.WORDS),
    },
    "TARGET_INFO_CUDA_DEVICE": _numbers("pid", "cudaId", "gpuId"),
    "TARGET_INFO_CUDA_CONTEXT_INFO": _numbers(
        "processId", "contextId", "isGreenContext", "numMultiprocessors"
    ),
    "TARGET_INFO_GPU_METRICS": {
        **_numbers("typeId", "metricId"),
        "metricName": Kept(TextKind.WORDS),
    },
    "TARGET_INFO_SESSION_START_TIME": _numbers("utcEpochNs"),
    "ANALYSIS_DETAILS": _numbers("duration"),
    "MPI_RANKS": _numbers("rank"),
    "PROCESSES": {"globalPid": _NUMBER, "name": Kept(TextKind.MODULE)},
    "ThreadNames": {"globalTid": _NUMBER, "nameId": Kept(TextKind.CALL, True)},
    ENTRIES: {**_numbers("domainId", "schemaId", "type", "offset"), "name": Kept(TextKind.FIELD)},
    **dict.fromkeys(
        (
            *("ENUM_CUDA_MEMCPY_OPER", "ENUM_CUDA_MEM_KIND", "ENUM_CUDA_DEV_MEM_EVENT_OPER"),
            *("ENUM_CUPTI_JIT_OPERATION_TYPE", "ENUM_CUPTI_SYNC_TYPE"),
            "ENUM_DIAGNOSTIC_SEVERITY_LEVEL",
        ),
        _ENUMERATION,
    ),
}
_LINES = {"file": Kept(TextKind.FILE), "line": _NUMBER, "text": Kept(TextKind.SOURCE)}
_CODE: Mapping[str, Kept] = {
    "name": Kept(TextKind.KERNEL),
    **dict.fromkeys(
        ("hash", "arch", "signature", "constexprs", "options"), Kept(TextKind.CODE_FACT)
    ),
    **_numbers("num_warps", "num_stages", "shared_memory_bytes", "source_line"),
    "source_file": Kept(TextKind.FILE),
    "source_text": Kept(TextKind.SOURCE),
    "ptx": Kept(TextKind.PTX),
    "cubin": Kept(TextKind.CUBIN),
}
# Columns of a stored trace with texts; those of any other table are words.
_TEXTS_OF_TABLE: Mapping[str, TextKind] = {
    column: kind
    for kind, columns in {
        TextKind.KERNEL: "kernels.name kernels.short_name kernels.mangled_name",
        TextKind.RANGE: "ranges.name ranges.domain communicators.name",
        TextKind.CALL: "api_calls.name os_calls.name overheads.name threads.name call_sites.hint",
        TextKind.FILE: "call_sites.file python_frames.file python_events.file",
        TextKind.FUNCTION: "call_sites.function python_frames.function python_events.function",
        TextKind.SOURCE: "call_sites.source python_frames.source python_events.source "
        "python_events.reason",
        TextKind.SYMBOL: "callchains.symbol native_frames.function",
        TextKind.MODULE: "callchains.module native_frames.module processes.name",
        TextKind.MESSAGE: "diagnostics.text",
    }.items()
    for column in columns.split()
}


KEPT: Mapping[str, Mapping[str, Kept]] = {
    **_of_exports(),
    **_LISTED,
    added_tables.KERNELS_TABLE: _CODE,
    added_tables.EXCERPTS_TABLE: _LINES,
    added_tables.SOURCE_LINES: _LINES,
    **{
        name: {
            column.name: Kept(_TEXTS_OF_TABLE.get(f"{name}.{column.name}", TextKind.WORDS), True)
            if column.dtype == "text"
            else _NUMBER
            for column in TABLES[name].columns
        }
        for name in NUMBERED
    },
}
"""Kept columns by table, except those of PAIRS and of the tables of texts."""
STRINGS = ("StringIds", TEXTS)
"""Tables of numbered texts (id, value), of which the texts that a kept column names are kept."""
PAIRS = (*META_TABLES, "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", RUN, ABOUT)
"""Tables of name and value, of which `facts` keeps the rows that a reader reads."""
OF_SOURCE = (added_tables.EXCERPTS_TABLE, added_tables.SOURCE_LINES)
"""Tables with lines of the program's files."""


# Words that a scrubbed trace may hold outside of names: those of the recorders and libraries.
#
# A word that is not listed is private by default. The diagnostics, threads, processes and
# enumerations of nsys 2022.4 to 2026.5 were read for it; a word missing here costs a `…` in a
# text, and no number.

_WORDS = """
a about an and any are as at based be because been before begins being but by can cannot could did
disabled do does done each enabled error errors event events every file failed for from found full
generated had has have if in info instead into is it its kind least level library loaded lost many
may message might missing more most much named names no none not number of off ok on one only open
or other out over part process processes program range ranges read see set short single some started
starting stopped such supported table text than that the there this time times to too unknown used
uses using version was were when which while will with without yes

abort access accesses activity add address addresses affinity all allocated allocation allocations
allocator amount another api apis application array attach available avg backtrace backtraces
bandwidth block blocks broken buffer buffers call callback calls cache cached capture captured cause
chain chains child chunk clock collect collected collecting collection complete completely completed
config configuration context contexts control copies copy core correctly count counter counters cpu
current currently cycle cycles cudaprofilerstop data deallocation debug default depth device devices
disable display driver dropped dropping dwarf dynamic eager enabling end ended environment evaluate
exit export extension fail failure fast finished flight flush flushed flushing frame frames
frequency function functions generic global gpu gpus graph graphs handle handler handlers hardware
high host idle image import incompatible incomplete index information init initialization initialize
initialized initializing injected injection instance instructions interpreter invalid jit kernel
kernels label large launch launched launcher layer limit linked loading load loads local lock lost
low main managed max maximum memory metric metrics min module moved native newer node object objects
occurred older operation option options overflow overhead overheads owner page pageable parent
partial path peer pending permission permissions period periodic pinned pool prefetch privileges
processing produced product profile profiled profiler profiling properties property queue ran rate
records reached reading reason record recorded recorder recording recordings regular release
released remote report required resource restore resume resumed root run running runtime sample
samples sampled sampling schedule security segment send session shared skipped size slot sm sms
source speculative stack stacks stall start state static statically statistics status stderr stdout
stop storage store stream streams string strings success successful successfully supports switch
symbol symbols sync synchronization system systems tag target task terminated thread threads
throughput throw timeout timestamp timestamps too tool total trace traced traces tracing tree
trigger try type unable unified unit units unresolved unsupported update upload usage user
utilization valid value values warning warnings warp warps wait waiting watchdog window work worker
workers write writing wrong log

amd ampere apple arm autograd bash blackwell bmm bw cc cicc clang cpp cublas cublaslt cuda cudafe
cudart cudnn cufft cupti curand cusolver cusparse cutlass ddr dma dram epilogue fatbinary fp gb gcc
geforce gl gnu gpc grace gtx h hbm hip hopper inductor instinct intel ip jax jemalloc jetson kfd ld
lib libc libcuda libcudart libcudnn libcupti libnccl libnvtx libtorch linux llvm lovelace mi mib
miopen mpi mpirun nccl ninja nproc nsight nsys nv nvcc nvidia nvjitlink nvlink nvls nvrtc nvtx nvvm
nvswitch opengl openmp optix orin os osrt osruntime pascal pcie ptx ptxas py python pytorch quadro
radeon rocm rtx sass slurm srun sxm super tegra tesla tf thor ti titan torch torchrun triton tsl tu
turing tokio uvm volta vram vulkan windows x xavier xla xlaeigen xlalauncher

async autograd backward bind callback clockwait cleanup cond condition continue counts cudadriver
data evt evthandlr foreach fork forward grad heartbt ib iter join loader mutex nanosleep next
optimizer orted pin pysampling pt rt step steps tcpstore thd uv watchdg zero commsprocesso comms
comm analysisservi bg proxy partition

accept barrier broadcast close connect create dlopen dup epoll fclose fcntl fflush fgets fopen fread
fsync fwrite getc ioctl mmap mprotect msync munmap openat pause pclose pipe poll popen ppoll pread
preadv pselect pthread putc puts pwait pwrite pwritev rdlock readv recv recvfrom recvmmsg recvmsg
rwlock select sem semop semtimedop sendfile sendmmsg sendmsg sendto signal sigtimedwait sigwait
sigwaitinfo sleep socket stat lstat fstat timedjoin timedlock timedrdlock timedwait timedwrlock
trylock tryjoin unlock usleep waitpid waitid writev wrlock backtracking spin futex flock lockf lseek
unlink rename splice tee vmsplice shutdown getaddrinfo nanosleep tid

atoa atod atoh cu cpuctxsw ctoc dev dtoa dtod dtoh eviction executed fault faults htoa htod htoh mem
memcpy memset migration none oper opr ptop verbose severity transfer uvmcpu wddm dtodpeer dma
unregistered backtracing collectives gather scatter reduce alltoall group collnet ring tree
cooperative coop multi fatal busy command commit compile compiled compilation invalidate overlapped

garbage break recompilation uncompiled

active alloc bf common created ctx dlclose early fx geometry gpc gr graphics holding ieee
instrumentation issue libraries management marked media memopr nvlrx nvltx object pixel pct rx
skipping so sw sys tess tls trapped tx unallocated unknownlevel vertex mhz ghz requires requested
response triage peer

all any bool cpu equal float int isnan item masked nonzero numpy print select synchronize tensor
tolist unique nounroll coalesced torch cuda elapsed

nvtxevents cublasevents cudnnevents flushed oncudaprofilerstop unwind unwound ipsamples insufficient
mark push pop receive blocking uninterruptible vf

restart rerun older elapsed exact truncated truncates corrupted damage damaged clipped columns
column rows row duration durations impossible out inferred joined guessed written read
"""

WORDS = frozenset(_WORDS.split())
_WORD = re.compile(r"[^\W\d_]+|\d+")
_MOST_DIGITS = 6
# Addresses of a network are numbers, too.
_ADDRESS = re.compile(
    r"\d+\.\d+\.\d+\.\d+|[0-9a-f]{2}([:-][0-9a-f]{2}){5}|::|@|[/\\]", re.IGNORECASE
)


def is_public(text: str) -> bool:
    """Whether every word of a text is listed, and no number in it is long or an address."""
    if _ADDRESS.search(text):
        return False
    return all(
        len(word) <= _MOST_DIGITS if word.isdigit() else word.lower() in WORDS or len(word) == 1
        for word in _WORD.findall(text)
    )

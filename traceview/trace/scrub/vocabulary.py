"""Words that a scrubbed trace may hold outside of names: those of the recorders and libraries.

A word that is not listed is private by default. The diagnostics, threads, processes and
enumerations of nsys 2022.4 to 2026.5 were read for it; a word missing here costs a `…` in a text,
and no number.
"""

from __future__ import annotations

import re

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

"""Frameworks: how each is recognized, and its own words for what a remedy asks for.

A framework is recognized by names of kernels and ranges. The default of each remedy is that of a
program without framework, in the words of CUDA.
"""

from __future__ import annotations

import re
from functools import cached_property

from traceview.base.records import record
from traceview.base.vocabulary.libraries import CUPY, XLA

_TF32 = "Use TF32 where a 10-bit mantissa is accurate enough: "
_BF16 = "where a 7-bit mantissa is accurate enough."


@record
class Framework:
    """One framework: patterns that its names hold, and phrases that remedies are made of.

    Attributes:
        name: "torch"; empty for none.
        kernels: pattern of the names of kernels that only it launches.
        ranges: pattern of the names of ranges that only it opens.
        fewer_launches: follows "Launch less often: ".
        pool: the pool from which the program can allocate.
        early_uploads: for uploads that hold up the GPU, the begin of a sentence.
        later_reads: reads results without a wait; follows "Read results less often, ".
        pinned: for copies from pageable memory, the begin of a sentence.
        data_region: for arrays that directives allocate or copy each time, the remedy; empty where
            the program itself does.
        parallel: for kernels of one thread, the remedy; empty where the program sets the grid.
        no_wait: for waits in which nothing is read, the remedy; empty for that of CUDA.
        one_memory: for copies where CPU and GPU share memory, what to use instead.
        copies_on_gpu: for copies within the memory of a GPU.
        fuse: for chains of elementwise kernels.
        replay: launches many tiny kernels at once; follows "Use ".
        attention: for attention that is not fused.
        product: the library's matrix product.
        tf32: for fp32 GEMMs off the tensor cores.
        bf16: for these, where TF32 is not faster.
    """

    name: str = ""
    kernels: str = ""
    ranges: str = ""
    fewer_launches: str = "fuse kernels, batch, or replay a CUDA graph"
    pool: str = "cudaMallocAsync"
    early_uploads: str = (
        "Pin what is uploaded (cudaHostAlloc) and copy it early with cudaMemcpyAsync"
    )
    later_reads: str = "or copy with cudaMemcpyAsync into pinned memory and read them a step later"
    pinned: str = (
        "Pin the host memory (cudaHostAlloc, cudaHostRegister) and copy with cudaMemcpyAsync"
    )
    data_region: str = ""
    parallel: str = ""
    no_wait: str = ""
    one_memory: str = "mapped memory (cudaHostAlloc) or managed memory (cudaMallocManaged)"
    copies_on_gpu: str = (
        "Swap buffers instead of copying one to the other, or let the kernel before write where "
        "the next one reads."
    )
    fuse: str = "Fuse them into one kernel per chain."
    replay: str = "a CUDA graph"
    product: str = "cuBLAS"
    attention: str = "Use a fused attention kernel (FlashAttention, cuDNN)."
    tf32: str = (
        f"{_TF32}cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH), or NVIDIA_TF32_OVERRIDE=1."
    )
    bf16: str = f"Use bf16 inputs {_BF16}"

    def launches(self, kernel: str) -> bool:
        """Whether the name of a kernel shows the framework."""
        return bool(self.kernels) and self._kernels.search(kernel) is not None

    def opens(self, range_: str) -> bool:
        """Whether the name of a range shows the framework."""
        return bool(self.ranges) and self._ranges.search(range_) is not None

    @cached_property
    def _kernels(self) -> re.Pattern[str]:
        return re.compile(self.kernels)

    @cached_property
    def _ranges(self) -> re.Pattern[str]:
        return re.compile(self.ranges)


FRAMEWORKS: tuple[Framework, ...] = (
    Framework(
        name="torch",
        kernels=r"\bat::native::|\btriton_(?:(?:poi|per|red|tem)_fused|_0d1d)",
        ranges=r"aten::|torch\.|Optimizer\.step#",
        # torch.compile took 1.8 of the 18.3 ms of a step of nanoGPT off, with this mode 12.3; a
        # replay with one launch per step says 13.7 (docs/accuracy.md).
        fewer_launches="replay CUDA graphs, as torch.compile's mode='reduce-overhead' does, or "
        "batch",
        pool="torch's allocator",
        early_uploads="Pin what is uploaded and copy it early with non_blocking=True",
        later_reads="or copy with non_blocking=True into pinned memory and read them a step later",
        pinned="Pin the host memory (pin_memory=True, Tensor.pin_memory) and copy with "
        "non_blocking=True",
        one_memory="managed memory (cupy.cuda.malloc_managed, shared by torch.from_dlpack)",
        copies_on_gpu="Write results where they are read (in-place operations, out=), and avoid "
        "clone() and contiguous() of what stays as it is.",
        fuse="Use torch.compile, which fuses them.",
        replay="torch.compile(mode='reduce-overhead') or torch.cuda.CUDAGraph",
        product="torch.matmul",
        attention="Use torch.nn.functional.scaled_dot_product_attention; with "
        "nn.MultiheadAttention need_weights=False, with transformers "
        'attn_implementation="sdpa".',
        tf32=f"{_TF32}torch.set_float32_matmul_precision('high'). torch.autocast to bf16 is faster "
        "still.",
        bf16=f"Use torch.autocast to bf16 {_BF16}",
    ),
    Framework(
        name="cupy",
        kernels=f"^{CUPY}",
        fewer_launches="fuse with cupy.fuse, batch, or replay a CUDA graph",
        pool="CuPy's memory pool",
        early_uploads="Put what is uploaded into pinned memory (cupyx.empty_pinned) and copy it "
        "early",
        later_reads="or copy with get(blocking=False) into pinned memory and read them a step "
        "later",
        one_memory="managed memory (cupy.cuda.set_allocator(cupy.cuda.malloc_managed))",
        pinned="Pin the host memory (cupyx.empty_pinned) and copy on a stream of its own",
        product="cupy.matmul",
        fuse="Fuse them: cupy.fuse, or one cupy.ElementwiseKernel for the chain.",
        tf32=f"{_TF32}set CUPY_TF32=1.",
    ),
    Framework(
        name="jax",
        kernels=rf"^(?:{XLA})|^xla_|\bxla::",
        ranges=r"Xla(?:Module|Pass|Compile)|TSL:",
        fewer_launches="put the whole step under one jax.jit, or several steps into jax.lax.scan",
        pool="XLA's preallocated memory",
        early_uploads="Start the transfer early with jax.device_put",
        later_reads="or keep them as arrays and read them a step later, after copy_to_host_async()",
        pinned="Pin the host memory (a sharding of memory_kind pinned_host)",
        fuse="Make them one jitted function: XLA fuses what it compiles together.",
        replay="one jitted function for the whole step",
        product="jnp.matmul",
        attention="Use jax.nn.dot_product_attention with implementation='cudnn'.",
        tf32=f"{_TF32}jax.default_matmul_precision('tensorfloat32').",
        bf16=f"Use jax.default_matmul_precision('bfloat16') {_BF16}",
    ),
    Framework(
        name="numba",
        # Its mangling; another compiler's tags are words, such as [abi:cxx11].
        kernels=r"\[abi:v\d+,\w",
        fewer_launches="merge kernels that follow each other, or batch",
        pool="RMM's, by cuda.set_memory_manager",
        early_uploads="Put what is uploaded into pinned memory (cuda.pinned_array) and copy it "
        "early with cuda.to_device(…, stream=…)",
        later_reads="or copy with copy_to_host(…, stream=…) into pinned memory and read them a "
        "step later",
        product="cupy.matmul or torch.matmul",
        one_memory="mapped or managed arrays (cuda.mapped_array, cuda.managed_array)",
        pinned="Pin the host memory (cuda.pinned_array) and copy on a stream of its own",
    ),
    Framework(
        name="julia",
        kernels=r"CuKernelContext|CuDeviceArray|CompilerMetadata|^julia_\w+_\d+|^ptxcall_",
        fewer_launches="fuse broadcasts into one dotted expression, batch, or CUDA.@captured",
        pool="that of CUDA.jl, with CUDA.unsafe_free! for what is no longer used",
        early_uploads="Pin what is uploaded (CUDA.pin) and copy it early with copyto!",
        later_reads="or copy with copyto! into pinned memory in a task of its own and read them a "
        "step later",
        product="mul! of CUDA.jl",
        one_memory="unified memory (cu(x; unified=true))",
        pinned="Pin the host memory (CUDA.pin) and copy in a task of its own",
        fuse="Fuse them: one dotted expression (@. …) becomes one kernel.",
        replay="CUDA.@captured",
        tf32=f"{_TF32}CUDA.math_mode!(CUDA.FAST_MATH).",
    ),
    Framework(
        name="openacc",
        kernels=r"\w_\d+_gpu(?:__red\w*)?$|^__pgi_uacc_",
        fewer_launches="put more loops into each parallel region, and queue regions with async",
        data_region="Keep these arrays in a data region around the loop (acc data, or acc enter "
        "data), so that the directives inside it allocate and copy nothing.",
        parallel="Make the loop parallel: acc parallel loop, or loop independent in a kernels "
        "region (nvc -Minfo=accel says what keeps it serial).",
        no_wait="Keep parallel regions from waiting: add async clauses, and one acc wait "
        "where the CPU needs results.",
        early_uploads="Copy once, in a data region around the loop, or by acc update async",
        later_reads="or copy them by acc update async and read them a step later",
        one_memory="managed memory (nvc -gpu=mem:managed)",
        fuse="Put the loops of a chain into one.",
        replay="fewer parallel regions with more work",
    ),
    Framework(
        name="openmp",
        kernels=r"^nvkernel_\w+_F\d+L\d+|^__omp_offloading_|\$_omp_fn\$",
        fewer_launches="put more loops into each target region, and add nowait with depend",
        data_region="Keep these arrays in a data region around the loop (omp target data, or "
        "target enter data), so that the directives inside it allocate and copy nothing.",
        parallel="Make the loop parallel: target teams distribute parallel for.",
        no_wait="Keep target regions from waiting: add nowait, depend where one needs another, "
        "and one taskwait where the CPU needs results.",
        early_uploads="Copy once, in a data region around the loop, or by target update nowait",
        later_reads="or copy them by target update nowait and read them a step later",
        one_memory="unified memory (omp requires unified_shared_memory)",
        fuse="Put the loops of a chain into one.",
        replay="fewer target regions with more work",
    ),
)
"""Each with its own words; the first whose kernels, else whose ranges, a trace holds is used."""
NO_FRAMEWORK = Framework()

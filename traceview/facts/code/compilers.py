"""Names by which compilers are recognized: Python source files, processes, ranges and kernels.

Each tool that generates GPU code at run time is a row of `TOOLS`. A Python stack shows a tool
compiling if one of its frames is in the compiler itself. Files that run compiled code
(`torch/_dynamo/eval_frame.py`, `torch/_inductor/runtime`, `jax/_src/pjit.py`) do not count, as they
are in the stack of every ordinary step, nor does the import of a module.
"""

from __future__ import annotations

import re

from traceview.vocabulary import libraries

TORCH_COMPILE, TRITON, JAX, CUPY, NUMBA, EXTENSION, AUTOTUNER, CUDNN, UNKNOWN = range(9)
TOOLS = (
    "torch.compile",
    "Triton",
    "XLA",
    "CuPy",
    "Numba",
    "a PyTorch C++ extension",
    "an autotuner",
    "cuDNN's trial of algorithms",
    "a compiler",
)
"""Names of the tools, by number."""

_FILES = tuple(
    (tool, rf"(?:^|.*/)(?:{files})")
    for tool, files in (
        (
            TORCH_COMPILE,
            r"torch/_dynamo/(?:convert_frame|symbolic_convert|bytecode_transformation|output_graph)"
            r"|torch/_inductor/(?:compile_fx|graph|scheduler|lowering|ir|async_compile|codecache"
            r"|select_algorithm|autotune_process|codegen/|fx_passes/"
            # Trials of the configurations of a kernel at its first call.
            r"|runtime/(?:benchmarking|coordinate_descent_tuner))"
            r"|torch/_functorch/_aot_autograd/(?:graph_compile|graph_capture|autograd_cache)"
            r"|torch/fx/experimental/proxy_tensor",
        ),
        (TRITON, r"triton/(?:compiler/|runtime/(?:build|autotuner)\.|backends/nvidia/compiler)"),
        (JAX, r"jax/_src/(?:compiler|compilation_cache|interpreters/(?:mlir|partial_eval))"),
        (CUPY, r"cupy/(?:cuda/compiler|_core/_fusion)|cupyx/jit/_compile"),
        (
            NUMBA,
            r"numba/(?:core/(?:compiler|codegen|typeinfer|lowering)|cuda/(?:compiler|codegen))",
        ),
        (EXTENSION, r"torch/utils/cpp_extension"),
    )
)
IDLE = re.compile(r"<module>$|shutdown|run$|launch_metadata$|_init_handles$")
"""Functions in the tools' files that compile nothing; `run` of compile_fx.py runs compiled code,
and the last two launch a compiled Triton kernel."""
IMPORTS = "importlib"
"""A part of the file name of the frames that import a module."""

PROCESSES = re.compile(
    r"(?:ptxas|nvcc|cicc|cudafe\+\+|fatbinary|nvlink|cc1|cc1plus|gcc|g\+\+|gcc-real|g\+\+-real|c\+\+"
    r"|clang|clang\+\+|collect2|ld|ld\.\w+|as|ninja)(?:-\d+)?$"
)
"""Names of the processes that compile, assemble and link."""
RANGES = re.compile(r"Xla(?:Compile|Autotun|Pass|Backend|Emit)|Autotun")
"""Ranges of XLA, in its domain, around compilation."""
RANGE_DOMAIN = "TSL"
_KERNELS = (
    (TORCH_COMPILE, libraries.INDUCTOR),
    (CUPY, libraries.CUPY),
    (JAX, rf"{libraries.XLA}|gemm_fusion_dot"),
)
"""Names that the tools give to the kernels they generate."""


def tool_of_kernel(name: str) -> int:
    """The tool that generated the kernel of that name; −1 for a name of no tool."""
    return next((tool for tool, rule in _KERNELS if re.match(rule, name)), -1)


def tool_of_file(file: str) -> int:
    """The tool whose compiler a source file belongs to; −1 for other files."""
    return next((tool for tool, rule in _FILES if re.match(rule, file)), -1)

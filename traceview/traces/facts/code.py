"""Code of kernels joined to their launches, and the names by which compilers are recognized."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np

from traceview.base import errors, groups
from traceview.base.records import record
from traceview.base.tables import Integers, Table
from traceview.base.vocabulary import amounts, libraries
from traceview.kernels.ptx.model import Argument, Compiled, ptx_text
from traceview.traces.facts.ranges.selection import selected_kernels
from traceview.traces.trace import Trace, fact, model
from traceview.traces.trace.nsys import added_tables
from traceview.traces.trace.nsys.added_tables import unpacked
from traceview.traces.trace.schema import KERNEL_CODE

# Names by which compilers are recognized: Python source files, processes, ranges and kernels.
#
# Each tool that generates GPU code at run time is a row of `TOOLS`. A Python stack shows a tool
# compiling if one of its frames is in the compiler itself. Files that run compiled code
# (`torch/_dynamo/eval_frame.py`, `torch/_inductor/runtime`, `jax/_src/pjit.py`) do not count, as
# they are in the stack of every ordinary step, nor does the import of a module.

TORCH_COMPILE, TRITON, JAX, CUPY, NUMBA, EXTENSION, AUTOTUNER, CUDNN, UNKNOWN = range(9)
NVFUSER, WARP, NVRTC = range(9, 12)
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
    "nvFuser",
    "Warp",
    "NVRTC",
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
        (WARP, r"warp/(?:_src/)?(?:build|codegen)\."),
        (NVRTC, r"cuda/(?:bindings/nvrtc|core/(?:experimental/)?_program)|pycuda/compiler"),
    )
)
IDLE = re.compile(
    r"<module>$|shutdown|run$|__call__$|copy_misaligned_inputs$|launch_metadata$|_init_handles$"
    r"|__getattribute__$|__getitem__$|get_arg_specialization$|all_kwargs$"
)
"""Functions in the tools' files that compile nothing themselves: they run compiled code (up to
`copy_misaligned_inputs`), or launch a compiled Triton kernel."""
IMPORTS = "importlib"
"""A part of the file name of the frames that import a module."""

PROCESSES = re.compile(
    r"(?:ptxas|nvcc|cicc|cudafe\+\+|fatbinary|nvlink|cc1|cc1plus|gcc|g\+\+|gcc-real|g\+\+-real|c\+\+"
    r"|clang|clang\+\+|collect2|ld|ld\.\w+|as|ninja)(?:-\d+)?$"
)
"""Names of the processes that compile, assemble and link."""
RANGES = (
    (JAX, "TSL", re.compile(r"Xla(?:Compile|Autotun|Pass|Backend|Emit)|Autotun")),
    (NVFUSER, "", re.compile(r"executor_utils::N(?:vrtc|VRTC)|FusionKernelRuntime::compile")),
    (NVRTC, "", re.compile(r"(?:\w+::)*(?:nvrtc|NVRTC|Nvrtc)")),
    (TORCH_COMPILE, "", re.compile(r".*\(dynamo_timed\)$")),
)
"""Ranges around compilation: the tool, the domain of its ranges, and their names."""
XLA_MODULE = re.compile(r"XlaCompile:#module=")
"""Begin of the range around the compilation of a module, before the name of that."""
_KERNELS = (
    (TORCH_COMPILE, libraries.INDUCTOR),
    (CUPY, libraries.CUPY),
    (JAX, rf"{libraries.XLA}|gemm_fusion_dot"),
    (NVFUSER, r"(?:.*::)?nvfuser_|CudaCodeGen::kernel"),
    (NUMBA, r".*cudapy"),
    (WARP, r"\w+_cuda_kernel_(?:forward|backward)$"),
)
"""Names that the tools give to the kernels they generate."""
AT_FIRST_CALL = (CUPY, NUMBA, NVFUSER, WARP, JAX)
"""Tools that compile a kernel when it is first called, and load its code themselves."""


def tool_of_kernel(name: str) -> int:
    """The tool that generated the kernel of that name; −1 for a name of no tool."""
    return next((tool for tool, rule in _KERNELS if re.match(rule, name)), -1)


def tool_of_file(file: str) -> int:
    """The tool whose compiler a source file belongs to; −1 for other files."""
    return next((tool for tool, rule in _FILES if re.match(rule, file)), -1)


# Gathered code joined to the launches of the trace.
#
# Several variants of one kernel share a name. A launch is of a variant if name, GPU, block size,
# shared memory and registers agree, as nsys records them. Gathered code has the kernel's symbol
# name, which equals the demangled name where nothing is mangled.

# Launches of a trace and variants of gathered code, by the properties that match them.

_REQUIRED = re.compile(r"^\s*\.reqntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", re.MULTILINE)
# Observed on an H200: Nsight Systems and Nsight Compute report 16 where the cubin has 14.
_LEAST_REGISTERS = 16
_MOST_THREADS = 1024

Grid = tuple[int, int, int]


@record
class Launches:
    """Launches equal in all properties that distinguish variants.

    `rows` are their rows in the table of kernels, `device` is a row in devices.
    """

    name: str
    mangled: str | None
    short_name: str
    device: int
    block: Grid
    registers: int
    dynamic_bytes: int
    static_bytes: int
    total_ns: int
    grids: Mapping[Grid, int]
    rows: Integers = field(compare=False, repr=False)

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return math.prod(self.block)

    @property
    def count(self) -> int:
        """The number of launches."""
        return sum(self.grids.values())


@record
class Variant:
    """The properties of a variant that its launches share; None where unknown."""

    name: str
    capability: str | None
    threads: int | None
    shared_bytes: int | None
    registers: int | None
    static_bytes: int | None

    @classmethod
    def of(cls, compiled: Compiled) -> Variant:
        """The properties of compiled code, read from its PTX, cubin and Triton metadata."""
        from traceview.kernels.ptx import cubin as cubin_file

        number = re.match(r"sm_(\d+)(\d)", compiled.arch)
        threads = compiled.num_warps * amounts.WARP_THREADS if compiled.num_warps else None
        # For warp-specialized kernels only the PTX has the threads of a block.
        head = re.search(rf"\.entry\s+{re.escape(compiled.name)}\b[^{{]*", compiled.ptx or "")
        if required := _REQUIRED.search(head[0]) if head else None:
            threads = math.prod(int(side) for side in required.groups() if side)
        try:
            kernels = cubin_file.resources(compiled.cubin) if compiled.cubin else {}
        except errors.TraceviewError:
            kernels = {}
        used = kernels.get(compiled.name)
        return cls(
            compiled.name,
            f"{number[1]}.{number[2]}" if number else None,
            threads,
            compiled.dynamic_shared_bytes,
            used.registers if used else None,
            used.static_shared_bytes if used and compiled.dynamic_shared_bytes is None else None,
        )

    def fits(self, launches: Launches, capability: str | None) -> bool:
        """Whether no known property of the variant differs from that of the launches."""
        dynamic, registers = launches.dynamic_bytes, launches.registers
        # The driver reports fewer registers as its minimum.
        fewer = range(_LEAST_REGISTERS) if registers == _LEAST_REGISTERS else range(0)
        major, _, minor = (self.capability or "").partition(".")
        of_gpu, _, minor_of_gpu = (capability or "").partition(".")
        # Code for older minor versions runs on newer ones.
        runs = not major or not of_gpu or (major == of_gpu and minor <= minor_of_gpu)
        return (
            self.name in (launches.name, launches.mangled)
            and runs
            and self.threads in (None, launches.threads)
            and self.shared_bytes in (None, dynamic, dynamic + launches.static_bytes)
            and self.registers in (None, registers, *fewer)
            and self.static_bytes in (None, launches.static_bytes)
        )


# Limit on the code read from a trace, above what any program compiles.
MOST_BYTES = 1 << 30
_MOST_LINES = 1_000_000


@record
class LaunchedCode:
    """One variant of a kernel, and its launches.

    `compiled.grid` is the most frequent of `grids` different ones. `device` is the row in devices
    of the longest launches. `alike` is the number of other variants that fit the same launches; all
    these launches, in `runs`, are counted for each of them.
    """

    compiled: Compiled
    launches: int
    total_ns: int
    device: int
    grids: int
    alike: int = 0
    runs: tuple[Launches, ...] = ()


@record
class GatheredCode:
    """The code in a trace: variants that were launched, longest first, and those that were not.

    Launches are those of the selected work. `unfit` counts, by name, launches that fit no variant
    of that name. `other_ns` is the time of kernels without code, `total_ns` that of all kernels.
    """

    launched: tuple[LaunchedCode, ...]
    named_idle: tuple[Compiled, ...]
    unfit: Mapping[str, int]
    other_ns: int
    total_ns: int
    unnamed: Table = field(repr=False)

    @cached_property
    def idle(self) -> tuple[Compiled, ...]:
        """Variants that were compiled and not launched, unpacked on first access."""
        return (*self.named_idle, *_variants(self.unnamed))


@fact
def gathered_code(trace: Trace) -> GatheredCode:
    """Join code and launches. Raises MissingTableError where no code was gathered."""
    table = trace.table("kernel_code")
    kernels = trace.recorded("kernels")
    chosen = np.flatnonzero(selected_kernels(trace))
    code = {name for name in table.cells("name") if isinstance(name, str)}
    texts = [kernels.texts(column).take(chosen) for column in ("name", "mangled_name")]
    ours = texts[0].isin(code) | texts[1].isin(code)
    ran = {name for column in texts for name in column.take(ours).decode() if name is not None}
    names = table.texts("name").isin(ran)
    variants = list(_variants(table.take(names)))
    spent = kernels.duration_ns[chosen]
    # Only these rows are read one by one; a trace has millions of others.
    joined, unfit = _joined(variants, list(_launches(kernels, chosen[ours])), trace.devices)
    launched = [_launched(variants[number], found, joined) for number, found in joined.items()]
    return GatheredCode(
        tuple(sorted(launched, key=lambda code: (-code.total_ns, code.compiled.name))),
        tuple(variant for number, variant in enumerate(variants) if number not in joined),
        unfit,
        int(spent[~ours].sum()),
        int(spent.sum()),
        table.take(~names),
    )


def _variants(table: Table) -> Iterator[Compiled]:
    left = MOST_BYTES
    rows: Iterable[Mapping[str, Any]] = table.rows()
    for row in rows:
        ptx, cubin = unpacked(row["ptx"]), unpacked(row["cubin"])
        left -= len(ptx or b"") + len(cubin or b"")
        if not (ptx or cubin) or left < 0:
            continue
        text, line = row["source_text"], row["source_line"]
        arguments = _arguments(_json(row["signature"], list), _json(row["constexprs"], dict))
        yield Compiled(
            name=row["name"],
            arch=row["arch"] or "",
            how="launched",
            ptx=ptx_text(ptx) if ptx else None,
            cubin=cubin,
            arguments=tuple(arguments),
            num_warps=row["num_warps"],
            num_stages=row["num_stages"],
            dynamic_shared_bytes=row["shared_memory_bytes"],
            source_file=row["source_file"],
            source_line=line,
            # Behind as many empty lines as put the source at its line in the file.
            source_text="\n" * (line - 1) + text if text and line and line < _MOST_LINES else None,
        )


def _json(text: str, kind: type) -> Any:
    """The value of a JSON text if it is a `kind`; else an empty `kind`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return kind()
    return value if isinstance(value, kind) else kind()


def _arguments(signature: Sequence[Any], constexprs: Mapping[str, Any]) -> Iterator[Argument]:
    for field_ in signature:
        if isinstance(field_, dict):
            name, type_ = str(field_.get("name")), str(field_.get("type"))
            value = constexprs.get(name)
            plain = value if isinstance(value, (int, float, str)) else None
            yield Argument(name, type_, field_.get("divisible_by_16") is True, plain)


def _launches(everything: Table, rows: Integers) -> Iterator[Launches]:
    """The launches in these rows of the table of kernels."""
    kernels = everything.take(rows)
    names, mangled = kernels.texts("name"), kernels.texts("mangled_name")
    properties = (
        kernels["device"],
        *(kernels[f"block_{axis}"] for axis in "xyz"),
        kernels["registers_per_thread"],
        kernels["dynamic_shared_memory_bytes"],
        kernels["static_shared_memory_bytes"],
    )
    alike = groups.group(names.codes, mangled.codes, *properties)
    spent = groups.sums(alike, kernels.duration_ns)
    # The number of launches by grid.
    axes = [kernels[f"grid_{axis}"] for axis in "xyz"]
    by_grid = groups.group(alike.ids, *axes)
    grids: list[dict[Grid, int]] = [{} for _ in range(alike.size)]
    for row, count in zip(by_grid.first.tolist(), groups.count(by_grid).tolist(), strict=True):
        x, y, z = (int(axis[row]) for axis in axes)
        grids[int(alike.ids[row])][x, y, z] = count
    order = np.argsort(alike.ids, kind="stable")
    rows_of = np.split(rows[order], np.flatnonzero(np.diff(alike.ids[order])) + 1)
    for number, row in enumerate(alike.first.tolist()):
        device, *block, registers, dynamic, static = (int(column[row]) for column in properties)
        yield Launches(
            str(names[row]),
            mangled[row],
            str(kernels.texts("short_name")[row]),
            device,
            (block[0], block[1], block[2]),
            registers,
            dynamic,
            static,
            int(spent[number]),
            grids[number],
            rows_of[number],
        )


def _joined(
    variants: Sequence[Compiled], launches: Sequence[Launches], devices: Table
) -> tuple[dict[int, list[Launches]], dict[str, int]]:
    """The launches of each variant, by its index, and the number that fit none, by kernel name."""
    capabilities = devices.texts("compute_capability")
    properties = [Variant.of(variant) for variant in variants]
    joined: dict[int, list[Launches]] = {}
    unfit = Counter[str]()
    for launched in launches:
        capability = capabilities[launched.device]
        fitting = [n for n, variant in enumerate(properties) if variant.fits(launched, capability)]
        # Among variants for several architectures, the one for the GPU's own runs.
        exact = [number for number in fitting if properties[number].capability == capability]
        for number in exact or fitting:
            joined.setdefault(number, []).append(launched)
        if not fitting:
            unfit[launched.name] += launched.count
    return joined, unfit


def _launched(
    compiled: Compiled, launches: Sequence[Launches], joined: Mapping[int, Sequence[Launches]]
) -> LaunchedCode:
    longest = max(launches, key=lambda alike: alike.total_ns)
    grids = Counter[Grid]()
    for alike in launches:
        grids.update(alike.grids)
    others = sum(any(alike in found for alike in launches) for found in joined.values()) - 1
    dynamic_bytes = compiled.dynamic_shared_bytes
    as_launched = replace(
        compiled,
        grid=grids.most_common(1)[0][0],
        launches=grids.total(),
        # CUDA C++ code does not fix these: the launch does.
        num_warps=compiled.num_warps or -(-longest.threads // amounts.WARP_THREADS),
        block=longest.block if not compiled.num_warps and _is_block(longest.block) else None,
        dynamic_shared_bytes=longest.dynamic_bytes if dynamic_bytes is None else dynamic_bytes,
    )
    return LaunchedCode(
        as_launched,
        grids.total(),
        sum(alike.total_ns for alike in launches),
        longest.device,
        len(grids),
        others,
        tuple(launches),
    )


def _is_block(sides: Grid) -> bool:
    """Whether a GPU can launch such blocks; a damaged trace may have any numbers."""
    return min(sides) > 0 and math.prod(sides) <= _MOST_THREADS


# Code given by the user for kernels that were recorded without it (--cubin).

_MOST_NAMES = 6


def with_code(trace: Trace, given: Sequence[Compiled]) -> Trace:
    """The trace with the code of those given kernels that ran in it.

    Raises InputError if none did.
    """
    kernels = trace.recorded("kernels")
    texts = [kernels.texts(column) for column in ("name", "mangled_name")]
    used = [text.values_of(groups.different(text.codes[text.codes >= 0])) for text in texts]
    ran = {name for names in used for name in names}
    ours = [kernel for kernel in given if kernel.name in ran]
    if not ours:
        different = list(dict.fromkeys(kernel.name for kernel in given))
        listed = ", ".join(name[:60] for name in different[:_MOST_NAMES])
        more = " …" if len(different) > _MOST_NAMES else ""
        what = "no kernel of the files given with --cubin ran in the trace"
        raise errors.InputError(what, f"they have {listed}{more}")
    rows: list[Mapping[str, Any]] = list(trace.recorded("kernel_code").rows())
    rows += added_tables.code_rows(ours)
    columns = {
        column.name: [row.get(column.name) for row in rows] for column in KERNEL_CODE.columns
    }
    table = Table(KERNEL_CODE.columns, columns)
    return replace(trace, tables={**trace.tables, KERNEL_CODE.name: table}, _facts=model.Facts())

"""Gathered code joined to the launches of the trace.

Several variants of one kernel share a name. A launch is of a variant if name, GPU, block size,
shared memory and registers agree, as nsys records them. Gathered code has the kernel's symbol name,
which equals the demangled name where nothing is mangled.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np

from traceview.errors import TraceviewError
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.ranges.selection import selected_operations
from traceview.groups import group, sums
from traceview.ptx.model import Argument, Compiled, Resources, ptx_text
from traceview.records import record
from traceview.tables import Integers, Mask, Table
from traceview.trace import Trace, fact
from traceview.trace.nsys.added_tables import unpacked
from traceview.vocabulary.amounts import WARP_THREADS

# Launches of a trace and variants of gathered code, by the properties that match them.

_REQUIRED = re.compile(r"^\s*\.reqntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", re.MULTILINE)
# Observed on an H200: Nsight Systems and Nsight Compute report 16 where the cubin has 14.
_LEAST_REGISTERS = 16

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
    threads: int
    registers: int
    dynamic_bytes: int
    static_bytes: int
    total_ns: int
    grids: Mapping[Grid, int]
    rows: Integers = field(compare=False, repr=False)

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
        number = re.match(r"sm_(\d+)(\d)", compiled.arch)
        known = _resources(compiled)
        return cls(
            compiled.name,
            f"{number[1]}.{number[2]}" if number else None,
            _threads(compiled),
            compiled.dynamic_shared_bytes,
            known.registers if known else None,
            known.static_shared_bytes if known and compiled.dynamic_shared_bytes is None else None,
        )

    def fits(self, launches: Launches, capability: str | None) -> bool:
        """Whether no known property of the variant differs from that of the launches."""
        dynamic = launches.dynamic_bytes
        return (
            self.name in (launches.name, launches.mangled)
            and _runs_on(self.capability, capability)
            and self.threads in (None, launches.threads)
            and self.shared_bytes in (None, dynamic, dynamic + launches.static_bytes)
            and self.registers in (None, launches.registers, *_rounded_up(launches.registers))
            and self.static_bytes in (None, launches.static_bytes)
        )


def _rounded_up(registers: int) -> range:
    """Smaller register counts in a cubin that the driver reports as its minimum, 16."""
    return range(_LEAST_REGISTERS) if registers == _LEAST_REGISTERS else range(0)


def _runs_on(own: str | None, gpu: str | None) -> bool:
    """Whether code for one compute capability runs on another: older minor versions do."""
    if own is None or gpu is None:
        return True
    major, _, minor = own.partition(".")
    of_gpu = gpu.partition(".")
    return major == of_gpu[0] and minor <= of_gpu[2]


def _threads(compiled: Compiled) -> int | None:
    """Threads per block. For warp-specialized kernels only the PTX has them."""
    ptx = compiled.ptx or ""
    head = re.search(rf"\.entry\s+{re.escape(compiled.name)}\b[^{{]*", ptx)
    required = _REQUIRED.search(head[0]) if head else None
    if required:
        return math.prod(int(side) for side in required.groups() if side)
    return compiled.num_warps * WARP_THREADS if compiled.num_warps else None


def _resources(compiled: Compiled) -> Resources | None:
    """The resources that the kernel uses; None where the cubin cannot be read."""
    from traceview.ptx.sass import cubin as cubin_file

    try:
        known = cubin_file.resources(compiled.cubin) if compiled.cubin else {}
    except TraceviewError:
        return None
    return known.get(compiled.name)


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
    chosen = np.flatnonzero(selected_operations(trace)[kernel_operations(trace)])
    names, ours = _ours(table, kernels.take(chosen))
    variants = list(_variants(table.take(names)))
    spent = kernels.duration_ns[chosen]
    # Only these rows are read one by one; a trace has millions of others.
    joined, unfit = _joined(variants, list(_launches(kernels, chosen[ours])), trace.devices)
    launched = [_launched(variants[at], found, joined) for at, found in joined.items()]
    return GatheredCode(
        tuple(sorted(launched, key=lambda code: (-code.total_ns, code.compiled.name))),
        tuple(variant for at, variant in enumerate(variants) if at not in joined),
        unfit,
        int(spent[~ours].sum()),
        int(spent.sum()),
        table.take(~names),
    )


def _ours(table: Table, kernels: Table) -> tuple[Mask, Mask]:
    """Masks of the rows of code whose kernels ran, and of the kernels that have code."""
    code = {name for name in table.cells("name") if isinstance(name, str)}
    texts = [kernels.texts(column) for column in ("name", "mangled_name")]
    ours = texts[0].isin(code) | texts[1].isin(code)
    ran = {each for column in texts for each in column.take(ours).decode() if each is not None}
    return table.texts("name").isin(ran), ours


def _variants(table: Table) -> Iterator[Compiled]:
    left = MOST_BYTES
    for row in table.rows():
        ptx, cubin = unpacked(row["ptx"]), unpacked(row["cubin"])
        left -= len(ptx or b"") + len(cubin or b"")
        if (ptx or cubin) and left >= 0:
            yield _compiled(row, ptx, cubin)


def _compiled(row: Mapping[str, Any], ptx: bytes | None, cubin: bytes | None) -> Compiled:
    return Compiled(
        name=row["name"],
        arch=row["arch"] or "",
        how="launched",
        ptx=ptx_text(ptx) if ptx else None,
        cubin=cubin,
        arguments=tuple(_arguments(_json(row["signature"], list), _json(row["constexprs"], dict))),
        num_warps=row["num_warps"],
        num_stages=row["num_stages"],
        dynamic_shared_bytes=row["shared_memory_bytes"],
        source_file=row["source_file"],
        source_line=row["source_line"],
        source_text=_in_its_file(row["source_text"], row["source_line"]),
    )


def _in_its_file(text: str | None, line: int | None) -> str | None:
    """A kernel's source behind as many empty lines as put it at its line in the file."""
    return "\n" * (line - 1) + text if text and line and line < _MOST_LINES else None


def _json(text: str, kind: type) -> Any:
    """The value of a JSON text if it is a `kind`; else an empty `kind`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return kind()
    return value if isinstance(value, kind) else kind()


def _arguments(signature: Sequence[Any], constexprs: Mapping[str, Any]) -> Iterator[Argument]:
    for each in signature:
        if isinstance(each, dict):
            name, type_ = str(each.get("name")), str(each.get("type"))
            value = constexprs.get(name)
            plain = value if isinstance(value, (int, float, str)) else None
            yield Argument(name, type_, each.get("divisible_by_16") is True, plain)


def _launches(everything: Table, rows: Integers) -> Iterator[Launches]:
    """The launches in these rows of the table of kernels."""
    kernels = everything.take(rows)
    threads = kernels["block_x"].astype(np.int64) * kernels["block_y"] * kernels["block_z"]
    configuration = group(
        kernels.texts("name").codes,
        kernels.texts("mangled_name").codes,
        kernels["device"],
        threads,
        kernels["registers_per_thread"],
        kernels["dynamic_shared_memory_bytes"],
        kernels["static_shared_memory_bytes"],
    )
    spent = sums(configuration, kernels.duration_ns)
    grids = _grids(kernels, configuration.ids)
    order = np.argsort(configuration.ids, kind="stable")
    each = np.split(rows[order], np.flatnonzero(np.diff(configuration.ids[order])) + 1)
    for number, row in enumerate(configuration.first.tolist()):
        yield Launches(
            str(kernels.texts("name")[row]),
            kernels.texts("mangled_name")[row],
            str(kernels.texts("short_name")[row]),
            int(kernels["device"][row]),
            int(threads[row]),
            int(kernels["registers_per_thread"][row]),
            int(kernels["dynamic_shared_memory_bytes"][row]),
            int(kernels["static_shared_memory_bytes"][row]),
            int(spent[number]),
            grids[number],
            each[number],
        )


def _grids(kernels: Table, ids: Any) -> list[dict[Grid, int]]:
    """The number of launches of each configuration by grid."""
    axes = [kernels[f"grid_{axis}"] for axis in "xyz"]
    each = group(ids, *axes)
    counts = np.bincount(each.ids, minlength=each.size).tolist()
    grids: list[dict[Grid, int]] = [{} for _ in range(int(ids.max()) + 1 if len(ids) else 0)]
    for row, count in zip(each.first.tolist(), counts, strict=True):
        x, y, z = (int(axis[row]) for axis in axes)
        grids[int(ids[row])][x, y, z] = count
    return grids


def _joined(
    variants: Sequence[Compiled], launches: Sequence[Launches], devices: Table
) -> tuple[dict[int, list[Launches]], dict[str, int]]:
    """The launches of each variant, by its index, and the number that fit none, by kernel name."""
    capabilities = devices.texts("compute_capability")
    known = [Variant.of(variant) for variant in variants]
    joined: dict[int, list[Launches]] = {}
    unfit: dict[str, int] = {}
    for each in launches:
        capability = capabilities[each.device]
        fitting = [at for at, variant in enumerate(known) if variant.fits(each, capability)]
        # Among variants for several architectures, the one for the GPU's own runs.
        own = [at for at in fitting if known[at].capability == capability]
        fitting = own or fitting
        for at in fitting:
            joined.setdefault(at, []).append(each)
        if not fitting:
            unfit[each.name] = unfit.get(each.name, 0) + each.count
    return joined, unfit


def _launched(
    compiled: Compiled, launches: Sequence[Launches], joined: Mapping[int, Sequence[Launches]]
) -> LaunchedCode:
    longest = max(launches, key=lambda each: each.total_ns)
    grids = Counter[Grid]()
    for each in launches:
        grids.update(each.grids)
    others = sum(any(each in found for each in launches) for found in joined.values()) - 1
    dynamic_bytes = compiled.dynamic_shared_bytes
    as_launched = replace(
        compiled,
        grid=grids.most_common(1)[0][0],
        launches=grids.total(),
        # CUDA C++ code does not fix these two: the launch does.
        num_warps=compiled.num_warps or -(-longest.threads // WARP_THREADS),
        dynamic_shared_bytes=longest.dynamic_bytes if dynamic_bytes is None else dynamic_bytes,
    )
    return LaunchedCode(
        as_launched,
        grids.total(),
        sum(each.total_ns for each in launches),
        longest.device,
        len(grids),
        others,
        tuple(launches),
    )

"""Atomics on global memory that cost more than a sum needs: order and contention.

Vector forms (PTX ISA manual, `atom` and `red`): .v2 and .v4 of f32 and .v2 to .v8 of f16 and bf16
from PTX 8.1 and sm_90; f16x2 from PTX 6.2 and sm_60, bf16x2 from PTX 7.8 and sm_90; none of
integers. Without .sem an operation is relaxed.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from traceview.base.errors import TraceviewError
from traceview.base.units import Value
from traceview.kernels.inspect.kernel_context import AccessContext, KernelContext
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.recompilations import Place
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.ptx.addresses.slicing import (
    Provenance,
    Slices,
    address_text,
    reads,
    registers_in,
    results,
    together,
)
from traceview.kernels.ptx.addresses.strides import LoopSteps, Samples
from traceview.kernels.ptx.model import Access, Compiled, Function, Instruction, SourceLine
from traceview.kernels.toolchain.listings import code_of
from traceview.kernels.toolchain.tools import number_of

_VECTORS_FROM = 90
_NARROWABLE = re.compile(r"\.(?:f32|f16|bf16|f16x2|bf16x2)$")
_OPERATIONS = {"f32": {"add"}, "f16": {"add", "min", "max"}}
_ORDERED = re.compile(r"\b((?:atom|red)\b[\w.:]*?)\.(acq_rel|acquire|release)\b")
_SWAP = re.compile(r"\.(?:exch|cas)\b")
_POLLING = ("ld.acquire", "ld.volatile", "ld.relaxed")
_FENCES = ("MEMBAR", "CCTL")
VECTORS_SINCE = "vector atomics need PTX ISA 8.1 and sm_90 or newer"
_ORDER = Diagnosis(
    "{instructions:atomic} at {places} {instructions?imposes|impose} {order} memory order"
    "{default}, although nothing reads {instructions?its result|their results}",
    "{relax} if only the sum matters and no other block waits for it",
)
_OF_TRITON = {"default": " (the default in Triton)", "relax": "Pass sem='relaxed'"}
_OF_CUDA = {"default": "", "relax": "Use relaxed order"}
_CONTENDED = Diagnosis(
    "All {all_blocks} update one address with the atomics at {line}, one after another",
    "Let each block write a partial result and sum these in a second kernel, if there are many "
    "blocks: likely faster, and deterministic",
)


_CONTENDED_BY_THREADS = Diagnosis(
    "All threads of {each_block} update one address with the atomics at {line}, one after another",
    "Sum within each warp (__shfl_down_sync) and block first, and update the address once per "
    "block",
    "high",
)
_COUNTED = Diagnosis(
    "Threads of all blocks count with atomics at {line} in bins that loaded values choose: those "
    "of one bin take place one after another",
    "If the bins fit, count in shared memory first, and add each block's bins to the result once",
    "medium",
)
_CONTENDED_IN_LOOP = Diagnosis(
    "All threads of {each_block} update one address with the atomics at {line} in each iteration "
    "of a loop, one after another",
    "Sum in a register over the loop, and update the address once per thread or block",
    "medium",
)
_FLUSHED = Diagnosis(
    "Each block adds its bins to global memory, with atomics at {line}, after each of its threads "
    "counted {counted:element}: as many atomics of global memory as elements, or more",
    "Let each block count many elements first: a loop in steps of gridDim.x * blockDim.x, with a "
    "few blocks per SM",
    "medium",
)
_OF_A_GROUP = Diagnosis(
    "Neighbouring threads update the same address with the atomics at {places}, one after another: "
    "of the thread's index it contains only a quotient",
    "Sum among the threads of one quotient first (__shfl_down_sync, in which all of a warp's "
    "threads take part, with 0 of those that have nothing to add), and let one of them update the "
    "address",
    "medium",
)
_CONTENDED_AT_EACH = Diagnosis(
    "The threads of a block update one address at a time with the atomics at {places}, one after "
    "another",
    "Sum within each warp first (__shfl_down_sync, in which all of its threads take part, with 0 "
    "of those that have nothing to add), and let one thread update the address",
    "medium",
)


def has_wider_form(access: Access, arch: str) -> bool:
    """Whether the PTX ISA has a vector of this atomic for the architecture."""
    words = set(access.opcode.split("."))
    type_ = _NARROWABLE.search(access.opcode)
    if number_of(arch) < _VECTORS_FROM or access.space != "global" or not type_:
        return False
    kind = "f32" if type_[0] == ".f32" else "f16"
    return bool(words & _OPERATIONS[kind])


def atomics(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Needless memory order, and contention of all blocks."""
    if kernel.provenance is None:
        return
    places: dict[Place, list[AccessContext]] = defaultdict(list)
    for (place, _), contexts in kernel.global_accesses.items():
        if place[1] == "atomic":
            places[place] += contexts
    slices, samples = kernel.provenance.slices, Samples.of(kernel.provenance, kernel.compiled)
    steps, one_by_one = LoopSteps(slices), list[SourceLine | None]()
    of_groups = list[SourceLine | None]()
    sums = _sums([context for listed in places.values() for context in listed], kernel.provenance)
    yield from _ordered(kernel, sums)
    for (source, _, _), listed in places.items():
        summed = [context for context in listed if context in sums]
        code = [each for context in summed for each in context.instructions]
        moves = any(steps.of(each) != 0 for each in code if each.loop_depth)
        yield from _contended(kernel, source, summed, moves)
        if moves and _is_of_all_threads(kernel, source, summed):
            one_by_one.append(source)
        if _is_of_groups(kernel, source, summed, samples):
            of_groups.append(source)
        yield from _flushed(kernel, slices, source, summed)
    if of_groups:
        yield CodeClaim(
            _OF_A_GROUP,
            {"lines": len(of_groups), "proven": True},
            "the address in PTX depends on the thread through a division or a shift alone",
            of_groups[0],
            of_groups,
        )
    if one_by_one:
        yield CodeClaim(
            _CONTENDED_AT_EACH,
            {"lines": len(one_by_one)},
            "the address in PTX changes with the loop and not with the thread",
            one_by_one[0],
            one_by_one,
        )


def _sums(listed: Sequence[AccessContext], provenance: Provenance) -> list[AccessContext]:
    """The atomics that only accumulate: nothing reads their results or waits for their array.

    A swap, and an atomic on an array of which the kernel reads an atomic's result or waits for a
    value, may be a lock, a flag or a counter that other blocks wait for.
    """
    if not listed:
        return []
    awaited = {
        provenance.slices.address(instruction).pointers
        for instruction in provenance.slices.function.instructions
        # It reads values that other blocks may be writing meanwhile.
        if instruction.opcode.startswith(_POLLING) and ".shared" not in instruction.opcode
    }
    for context in listed:
        written = (name for i in context.instructions for name in results(i))
        if any(name in provenance.slices.read_registers for name in written):
            awaited |= context.pointers
    return [
        context
        for context in listed
        if not _SWAP.search(context.access.opcode) and not awaited & context.pointers
    ]


def _ordered(kernel: KernelContext, sums: Sequence[AccessContext]) -> Iterator[CodeClaim]:
    """Sums that impose a memory order, which a sum does not need."""
    ordered = [context for context in sums if _ORDERED.search(context.access.opcode)]
    if not ordered:
        return
    accesses = [context.access for context in ordered]
    opcodes, worst = Counter[str](), max(accesses, key=lambda access: access.count)
    for access in accesses:
        opcodes[access.opcode] += access.count
    count = opcodes.total()
    # Beside a loop, in which the time is spent, they take place once.
    every = (c.access for contexts in kernel.global_accesses.values() for c in contexts)
    has_loop = any(access.loop_depth for access in every)
    many = any(access.loop_depth for access in accesses) or (count > 1 and not has_loop)
    counted = " + ".join(f"{count} × {opcode}" for opcode, count in opcodes.most_common())
    numbers = {i.line for context in ordered for i in context.instructions}
    shown, fences = _fences_shown(kernel.compiled, numbers, kernel.code.sass)
    order = _ORDERED.search(worst.opcode)
    yield CodeClaim(
        _ORDER,
        {"instructions": count, "order": order[2] if order else "", **fences},
        f"{counted} in PTX{shown}",
        worst.source,
        sorted({a.source for a in accesses}, key=lambda at: (at.file, at.line) if at else ("", 0)),
        # Only Triton imposes an order by default; in CUDA C++ it is explicit.
        words=_OF_CUDA
        if worst.source is None or kernel.compiled.is_cuda(worst.source)
        else _OF_TRITON,
        severity="medium" if many else "low",
    )


def _fences_shown(
    compiled: Compiled, lines: Collection[int], sass: Function | None
) -> tuple[str, dict[str, Value]]:
    """The fences in SASS, and those left if the atomics on these PTX lines are relaxed.

    As text for the basis of a finding, and as values for its evidence.
    """
    if sass is None or not compiled.ptx:
        return "", {}
    before = _fences(sass.instructions)
    relaxed = replace(compiled, ptx=_relaxed(compiled.ptx, lines), cubin=None, notes=())
    try:
        after = code_of(relaxed).sass
    except TraceviewError:
        after = None
    basis = f"; {before} fences and cache invalidations (MEMBAR, CCTL) in SASS"
    if after is None:
        return basis, {"fences": before}
    left = _fences(after.instructions)
    basis += f", {left} when assembled with .relaxed instead"
    return basis, {"fences": before, "fences_if_relaxed": left}


def _fences(instructions: Iterable[Instruction]) -> int:
    return sum(instruction.opcode.startswith(_FENCES) for instruction in instructions)


def _relaxed(ptx: str, lines: Collection[int]) -> str:
    """The PTX with the atomics on `lines`, numbered from 1, relaxed."""
    return "\n".join(
        _ORDERED.sub(r"\1.relaxed", text) if number in lines else text
        for number, text in enumerate(ptx.split("\n"), 1)
    )


def _contended(
    kernel: KernelContext, source: SourceLine | None, listed: Sequence[AccessContext], moves: bool
) -> Iterator[CodeClaim]:
    """Sums of all blocks at one address. Addresses that depend on loaded data are left out.

    `moves`: the address is another one in each iteration of a loop.
    """
    origin = together(context.address for context in listed)
    blocks = math.prod(kernel.compiled.grid) if kernel.compiled.grid else None
    varies = moves or origin.per_thread or origin.per_block or origin.loaded
    is_cuda = bool(listed) and kernel.compiled.is_cuda(source)
    code = kernel.code.ptx.instructions if kernel.code.ptx else ()
    if is_cuda and origin.gathered and _counts(kernel, listed):
        yield CodeClaim(
            _COUNTED,
            {"line": line_name(source), "proven": True},
            "the address in PTX depends on loaded data, and the value is a constant",
            source,
        )
    if listed and blocks != 1 and not varies:
        in_loop = any(context.access.loop_depth for context in listed)
        # ptxas lets one thread per warp add integers.
        sass = kernel.code.sass.instructions if kernel.code.sass else ()
        elects = any(_ELECTS.match(each.opcode.lower()) for each in (*code, *sass))
        by_threads = is_cuda and not elects
        rare = any(each.opcode.startswith("setp") and _is_loaded(kernel, each) for each in code)
        says = _CONTENDED_BY_THREADS if by_threads else _CONTENDED
        yield CodeClaim(
            _CONTENDED_IN_LOOP if in_loop else says,
            {"line": line_name(source), "blocks": blocks},
            "the address depends on neither the thread nor the block",
            source,
            severity="medium" if rare and says is _CONTENDED_BY_THREADS and not in_loop else None,
            words={
                "all_blocks": "{blocks:block}" if blocks else "blocks",
                "each_block": "{blocks:block}" if blocks else "all blocks",
            },
        )


def _is_of_all_threads(
    kernel: KernelContext, source: SourceLine | None, listed: Sequence[AccessContext]
) -> bool:
    """Whether all threads of a block update the same address, and do not combine their values."""
    origin = together(context.address for context in listed)
    code = kernel.code.ptx.instructions if kernel.code.ptx else ()
    combines = any(_COMBINES.match(each.opcode) for each in code)
    is_shared = origin.through_shared and not (origin.per_thread or origin.loaded)
    return is_shared and not combines and kernel.compiled.is_cuda(source)


def _is_of_groups(
    kernel: KernelContext,
    source: SourceLine | None,
    listed: Sequence[AccessContext],
    samples: Samples,
) -> bool:
    """Whether threads of one quotient update the same address, each with a value of its own."""
    slices, code = samples.slices, [each for context in listed for each in context.instructions]
    if not code or not kernel.compiled.is_cuda(source):
        return False
    every = slices.function.instructions
    if any(_COMBINES.match(each.opcode) for each in every):
        return False
    if any(c.address.gathered or c.address.picked for c in listed):
        return False
    # One of the threads is chosen.
    guards = (b for each in code for b in _around(each, samples) if b.predicate)
    compared = (w for b in guards for w in slices.writers((b.predicate or "").lstrip("!")))
    equal = (w for w in compared if _EQUALS.match(w.opcode) and slices.compared(w).per_thread)
    if any(not slices.shares_quotient(reads(w)) for w in equal):
        return False
    return all(slices.shares_quotient(registers_in(address_text(e.operands))) for e in code)


def _around(atomic: Instruction, samples: Samples) -> list[Instruction]:
    return [atomic, *(branch for branch, _ in samples.branches.around(atomic))]


def _flushed(
    kernel: KernelContext,
    slices: Slices,
    source: SourceLine | None,
    listed: Sequence[AccessContext],
) -> Iterator[CodeClaim]:
    """Bins that are added to global memory once for each element that a thread counts."""
    counts = [a for a in kernel.accesses if (a.level, a.space, a.kind) == _SHARED_ATOMIC]
    code = [each for context in listed for each in context.instructions]
    if not code or not counts or any(access.loop_depth for access in counts):
        return
    counted = sum(access.count for access in counts)
    values = (registers_in(each.operands.rpartition(",")[2]) for each in code)
    from_shared = all(slices.origin(registers).through_shared for registers in values)
    if from_shared and kernel.compiled.is_cuda(source) and len(code) >= counted:
        yield CodeClaim(
            _FLUSHED,
            {"line": line_name(source), "counted": counted, "proven": True},
            "PTX: no loop is around the atomics on shared memory, and their sums are added to "
            "global memory",
            source,
        )


_SHARED_ATOMIC = ("ptx", "shared", "atomic")
_EQUALS = re.compile(r"setp\.(?:eq|ne)\b")
_COMBINES = re.compile(r"shfl|redux|vote|activemask|match|elect")
# What a kernel does whose threads combine their values, or of which one is chosen. Without, sums of
# 16 and 64 Mi floats took 240 and 8 times as long as per block on an H200.
_ELECTS = re.compile(r"bar\b|barrier|shfl|redux|vote|activemask|match|elect|setp\.(?:eq|ne)\b")
_CONSTANT = re.compile(r",\s*-?(?:0[xXfFdD])?[0-9a-fA-F]+$")


def _is_loaded(kernel: KernelContext, instruction: Instruction) -> bool:
    """Whether loaded data decide a comparison, which may let few threads through."""
    slices = kernel.provenance.slices if kernel.provenance else None
    return slices is not None and slices.compared(instruction).loaded


def _counts(kernel: KernelContext, listed: Sequence[AccessContext]) -> bool:
    """Whether atomics add a constant, as a histogram does, without counting in shared memory."""
    shared = any(a.space == "shared" and a.kind == "atomic" for a in kernel.accesses)
    added = (each.operands for context in listed for each in context.instructions)
    return not shared and all(_CONSTANT.search(operands) for operands in added)

"""Global accesses narrower than 128 bits: where they are, how much they matter, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from traceview.base.findings import SEVERITIES, Severity
from traceview.base.units import Value
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.inspect.kernel_context import (
    ENOUGH_BYTES_IN_FLIGHT,
    AccessContext,
    KernelContext,
)
from traceview.kernels.inspect.kernel_report import helper_lines, inlined_text
from traceview.kernels.inspect.recompilations import by_place, widths, widths_text
from traceview.kernels.inspect.rules.atomics import VECTORS_SINCE, has_wider_form
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.inspect.rules.loops import few_loads_in_flight
from traceview.kernels.inspect.rules.vector_width import causes
from traceview.kernels.inspect.rules.vector_width.from_layout import limit_of, tile_bits
from traceview.kernels.inspect.rules.vector_width.inferred import UNPROVEN, inferred_reason
from traceview.kernels.inspect.rules.vector_width.proven import KINDS, reason_of
from traceview.kernels.ptx.addresses.slicing import Array, together
from traceview.kernels.ptx.addresses.strides import LoopSteps, Samples, Stride
from traceview.kernels.ptx.model import Access, Instruction
from traceview.kernels.toolchain.tools import number_of

_MOVES = ("load", "store", "async-copy")
_MINOR_SHARE = 0.1
# Per thread, of tiles that are worth bulk copies: 64 and 128 rows of 128 bytes by 256 threads. The
# scales of their rows are 64 bits of it.
_LEAST_OF_BULK_BITS = 768
_SECTOR_BITS = 256
_SHIFTS = ("shl.b", "prmt.", "bfi.")
# Of the bytes that a structure's members share sectors with, nearly all are needed.
_USED, _MOST_OF_ARRAY = 0.88, 16
_WHOLE_BITS = 32
# Hopper and Blackwell of data centers, with HBM3.
_MUCH_BANDWIDTH = (90, 100, 103)
_ALONE = (
    "a thread loads no more, so that the 2,048 threads of an SM have 8.19 kB or less in flight, of "
    "25.0 kB that an H100's bandwidth takes"
)
# Of accesses whose sectors the next iterations find in the cache.
_MINOR_WALKED_SHARE = 0.25
# Below this share of what a pass moves, no change to an access saves as much as a trial must show.
_NEGLIGIBLE_SHARE = 0.03
# Of the bytes that a pass needs, by the sectors that an access touches. Where all accesses have 32
# bits they cost 37 % of the time (`_is_alone`): those of a quarter of the bytes less than a tenth.
_SMALL_SHARE = 0.25
# Times the memory's: a pass of a kernel with twice the arithmetic is no longer bound by its loads.
_MUCH_ARITHMETIC = 2.0
_NARROW = Diagnosis(
    f"Global {{places}} move {{most}}{{width_bits:bit}} per thread per instruction instead of "
    f"{causes.WIDE_BITS} ({{widths}}){{because}}",
    # Tiles of a product's operands in shared memory are loaded along their rows, too.
    explained_by=("narrow_global_accesses", "unshared_products"),
)
# The greater cost, where elements are far apart.
_SECTORS = "{sectors_per_request} sectors instead of {ideal_sectors_per_request}"
_FAR_APART = replace(_NARROW, message=f"{_NARROW.message}. A warp's request touches {_SECTORS}")


def narrow_global_accesses(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Lines whose global accesses are narrower than 128 bits, one finding for each cause.

    An access whose address is the same for all threads of a block, or that is of a scalar in the
    source, moves one value, and is left out. A cause is called likely unless a recompilation or the
    addresses prove it.
    """
    if kernel.provenance is None:
        return
    streams = {
        stream: [context.access for context in contexts]
        for stream, contexts in kernel.global_accesses.items()
    }
    # A lock's atomic spins in a loop of its own.
    moves = [a for (place, _), listed in streams.items() if place[1] in _MOVES for a in listed]
    deepest = max((access.loop_depth for access in moves), default=0)
    # What a loop moves counts in each of its passes: a large tile before it does not outweigh it.
    hottest = {
        (place, array): min(
            kernel.bits_per_pass(c for c in contexts if c.access.loop_depth >= deepest),
            tile_bits(place, array, kernel.compiled),
        )
        for (place, array), contexts in kernel.global_accesses.items()
    }
    samples = Samples.of(kernel.provenance, kernel.compiled)
    # Triton's tiles say how many threads move something.
    shares = {
        (place, array): max(samples.share_of_threads(each.instructions[0]) for each in contexts)
        if kernel.compiled.is_cuda(place[0])
        else 1.0
        for (place, array), contexts in kernel.global_accesses.items()
    }
    hottest = {stream: bits * shares[stream] for stream, bits in hottest.items()}
    # The size of a bulk copy (TMA) is not in its instruction.
    bulk = any(
        (each.level, each.space, each.kind) == ("ptx", "global", "async-copy")
        and each.width_bits is None
        and each.loop_depth >= deepest
        for each in kernel.accesses
    )
    most = max([*hottest.values(), _LEAST_OF_BULK_BITS * bulk], default=0)
    in_sass = by_place(kernel.accesses, "sass")
    alike: dict[tuple[int, causes.NarrowReason], list[tuple[causes.Narrow, Severity]]] = (
        defaultdict(list)
    )
    shared = _is_stencil(kernel, samples)
    every = {s: _narrow(kernel, kernel.global_accesses[s], samples, shared) for s in streams}
    bits = {s: kernel.bits_per_pass(contexts) for s, contexts in kernel.global_accesses.items()}
    # Threads beyond a tiny tile move nothing, and all but one for a scalar.
    threads = WARP_THREADS * (kernel.compiled.num_warps or 1)
    of_tiles = {
        (place, array): moved / threads
        if place[:2] in kernel.scalar_accesses
        else min(moved, tile_bits(place, array, kernel.compiled))
        for (place, array), moved in bits.items()
    }
    total = sum(bits.values())
    tiled = any(each.tiles for each in every.values() if each)
    alone = _is_alone(kernel)
    # A loop that waits for memory's latency, or computes for longer than it loads, gains little.
    waits, computes = any(few_loads_in_flight(kernel)), kernel.arithmetic >= _MUCH_ARITHMETIC
    for stream, listed in streams.items():
        if narrow := every[stream]:
            least = _MINOR_WALKED_SHARE if narrow.layout.walked else _MINOR_SHARE
            minor = hottest[stream] < least * most
            outside = max(a.loop_depth for a in listed) < deepest
            merged = _is_merged(narrow, in_sass.get(stream[0], ()))
            moved = min(narrow.moved, of_tiles[stream]) * _waste(narrow) * shares[stream]
            little = min(_NEGLIGIBLE_SHARE * total, _MINOR_SHARE * max(of_tiles.values()))
            slightest = moved < little
            reason = _reason(narrow, kernel, tiled=tiled, slightest=slightest)
            minor |= outside or merged
            if reason is UNPROVEN and (minor or computes):
                continue
            # A recording has the time that shows more.
            whole = narrow.width >= _WHOLE_BITS and not alone
            given = kernel.compiled.how == "given"
            leave = _COALESCED if whole else _SLIGHT if minor else _PACED if narrow.paced else ""
            if given and reason.coalesced and not reason.kept:
                proof = f"{reason.basis}; {_ALONE}" if alone and not leave else reason.basis
                remedy = leave or reason.remedy
                reason = replace(reason, remedy=remedy, kept=bool(leave), basis=proof)
            lane = narrow.layout.lane
            served = given and reason.uncertain and lane is not None and not lane.parameter
            served &= narrow.used
            # A small type beside larger ones, or an index, is a small part of all bytes.
            sent = hottest[stream] * (1.0 if narrow.used else _waste(narrow))
            small = sent < _SMALL_SHARE * sum(hottest.values())
            # Several narrow loads per thread, or a loop of them, fill the latency in part.
            marginal = given and reason.coalesced and not alone
            severity = _severity(narrow, reason, minor=minor or served or small or marginal)
            if severity == "high" and (waits or _keeps_up(narrow, kernel)):
                severity = "medium"
            if severity != "info" and computes:
                severity = "low"
            if severity != "info" and _follows_a_wider_type(narrow, kernel):
                severity = "low"
            alike[narrow.width, reason].append((narrow, severity))
    if any(reason.coalesced and not reason.kept for _, reason in alike):
        # A thread that moves vectors of a small type moves as many elements of the others.
        alike = {key: same for key, same in alike.items() if key[1].remedy != _COALESCED}
    claims = [
        _claim(
            [narrow for narrow, _ in same],
            reason,
            min((severity for _, severity in same), key=SEVERITIES.index),
            total,
        )
        for reason, same in _of_one_remedy(alike)
    ]
    # Sectors that nobody needs cost more than narrow instructions.
    yield from sorted(claims, key=lambda claim: claim.says is not _FAR_APART)


def _of_one_remedy(
    alike: Mapping[tuple[int, causes.NarrowReason], list[tuple[causes.Narrow, Severity]]],
) -> Iterator[tuple[causes.NarrowReason, list[tuple[causes.Narrow, Severity]]]]:
    """The accesses grouped by reason; reasons that differ only in a name are joined."""
    waiting = [(reason, list(same)) for (_, reason), same in alike.items()]
    while waiting:
        reason, same = waiting.pop(0)
        others = [each for each in waiting if each[0].joined([reason])]
        whole = reason.joined([other for other, _ in others])
        if others and whole:
            waiting = [each for each in waiting if each not in others]
            same = [*same, *(narrow for _, members in others for narrow in members)]
        yield whole or reason, same


def _is_stencil(kernel: KernelContext, samples: Samples) -> bool:
    """Whether threads of CUDA C++ read elements of an array that their neighbours read, too."""
    loads: dict[tuple[Array, int], list[Instruction]] = defaultdict(list)
    for ((source, kind, _), array), contexts in kernel.global_accesses.items():
        for context in contexts if kind == "load" and kernel.compiled.is_cuda(source) else ():
            width = (context.access.width_bits or 0) // 8
            loads[array, width] += context.instructions
    several = ((width, listed) for (_, width), listed in loads.items() if len(listed) > 1)
    return any(samples.overlap(listed, width) for width, listed in several if width)


def _narrow(
    kernel: KernelContext, contexts: Sequence[AccessContext], samples: Samples, shared: bool
) -> causes.Narrow | None:
    """The narrow accesses of a place to an array; None if they move less than half its bits."""
    place, array, provenance = contexts[0].place, contexts[0].array, kernel.provenance
    narrow = [c for c in contexts if c.access.width_bits and c.access.width_bits < causes.WIDE_BITS]
    if place[1] == "atomic":
        narrow = [c for c in narrow if has_wider_form(c.access, kernel.compiled.arch)]
    every, accesses = [c.access for c in contexts], [c.access for c in narrow]
    moved = kernel.bits_per_pass(narrow)
    few = 2 * moved < kernel.bits_per_pass(contexts)
    one_value = (place[0], place[1]) in kernel.scalar_accesses
    if provenance is None or place[1] not in KINDS or not narrow or few or one_value:
        return None
    address = together(context.address for context in narrow)
    if not (address.per_thread or address.gathered or address.through_shared):
        return None
    masks = [name for context in narrow for name in context.guard.parameters]
    names = (address.parameters, masks, address.loaded_from)
    suspects = causes.Suspects(*(tuple(provenance.named(each)) for each in names))
    # Copies that a pipeline starts before its loop are of several iterations.
    looped = [c for c in narrow if c.access.kind == "async-copy" and c.access.loop_depth]
    most = max(looped or narrow, key=lambda context: context.access.count)
    element_bits = provenance.element_bits_at(most.address)
    is_cuda = kernel.compiled.is_cuda(place[0])
    # The compiler orders the loads of CUDA C++, such as those of a structure, at will.
    ordered = samples.in_order(most.instructions) if is_cuda else most.instructions
    layout = samples.layout(most.access, ordered, element_bits)
    fraction = _bits(accesses) / _bits(every)
    costs = kernel.request_costs
    cost = costs.cost_of(most.access, most.instructions) if costs else None
    # Neighbours that read the same element together move less than one instruction per element.
    served = cost.sectors * _SECTOR_BITS if cost and cost.sectors else 0
    unknown = address.counted or address.divided
    alike = (layout.lane == Stride(0) and not unknown) or 0 < 2 * served <= WARP_THREADS * (
        most.access.width_bits or 0
    )
    if alike and is_cuda:
        return None
    helpers = helper_lines(each for context in narrow for each in context.instructions)
    used, used_fraction = _use(kernel, most, samples)
    found = causes.Narrow(
        place, array, tuple(accesses), fraction, moved, address, suspects, layout, cost, helpers,
        used, shared, _overlap(most, samples),
        _assembled(kernel, most), *_pace(kernel, most), used_fraction,
    )  # fmt: skip
    limit = limit_of(found, kernel.compiled) if layout.scattered else None
    # Copies to a transposed tile are in the tile's order, not in memory's.
    adjacent = limit is not None and min(limit.share.adjacent, limit.contiguity) > 1
    in_order = replace(layout, step=Stride(layout.width_bytes))
    return replace(found, layout=in_order) if adjacent else found


def _pace(kernel: KernelContext, most: AccessContext) -> tuple[bool, bool]:
    """Whether a loop of CUDA C++ moves on by a run-time value, and the one around it rereads."""
    depth = most.access.loop_depth
    if not depth or not kernel.provenance or not kernel.compiled.is_cuda(most.place[0]):
        return False, False
    advances = LoopSteps(kernel.provenance.slices).advances(most.instructions[0])
    return advances.get(depth, False), depth > 1 and depth - 1 not in advances


def _assembled(kernel: KernelContext, most: AccessContext) -> bool:
    """Whether CUDA C++ loads several bytes one by one and shifts them into words there."""
    source, kind, _ = most.place
    several = len(most.instructions) > 1 and (kind, most.access.width_bits) == ("load", 8)
    if not (several and kernel.compiled.is_cuda(source) and kernel.code.ptx):
        return False
    here = (i.opcode for i in kernel.code.ptx.instructions if i.source == source)
    return any(opcode.startswith(_SHIFTS) for opcode in here)


def _overlap(most: AccessContext, samples: Samples) -> bool:
    """Whether each thread stores what its neighbours store, too, whatever the data."""
    stores = [each for each in most.instructions if not each.predicate]
    runs = most.place[1] == "store" and len(stores) > 1 and samples.in_one_block(stores)
    return runs and samples.overlap(stores, (most.access.width_bits or 0) // 8)


def _use(
    kernel: KernelContext, context: AccessContext, samples: Samples
) -> tuple[bool, float | None]:
    """Whether an array's accesses together may need all of the sectors that they touch.

    And the fraction that they need, where it is known: of structures in CUDA C++. All may be needed
    of adjacent members of structures whose size is a parameter, such as the channels of pixels, and
    of what is accessed through a pointer of which the array is not known.
    """
    if kernel.request_costs is None or not context.array:
        return kernel.request_costs is not None, None
    every = [
        each
        for (_, array), contexts in kernel.global_accesses.items()
        if array == context.array
        for each in contexts
    ]
    listed = [i for each in every for i in each.instructions[:_MOST_OF_ARRAY]]
    width = (context.access.width_bits or 8) // 8
    used = kernel.request_costs.used_fraction(listed, width)
    alike = {each.access.width_bits for each in every} == {context.access.width_bits}
    whole = len(listed) == sum(len(each.instructions) for each in every)
    structures = kernel.compiled.is_cuda(context.place[0]) and samples.are_structures(listed)
    if used is not None and alike and whole and structures:
        return used >= _USED, used
    return (used is not None and used >= _USED) or samples.are_members(listed), None


def _is_merged(narrow: causes.Narrow, sass: Sequence[Access]) -> bool:
    """Whether ptxas merges loads that the PTX repeats, to at most half of the bits."""
    again = narrow.layout.scattered and narrow.layout.apart == 0
    return again and 0 < 2 * _bits(sass) <= _bits(narrow.accesses)


def _bits(listed: Sequence[Access]) -> int:
    return sum(width * count for width, count in widths(listed).items())


def _severity(narrow: causes.Narrow, reason: causes.NarrowReason, *, minor: bool) -> Severity:
    """What is not proven or may not pay, and what only some data allow, is never high."""
    if reason.kept:
        return "info"
    if minor or reason.refuted or reason.inherent:
        return "low"
    if reason.conditional or reason.uncertain or not reason.proven:
        return "medium"
    # A repeated element comes from the cache.
    again = narrow.layout.scattered and narrow.layout.apart == 0
    served = again or narrow.reread or narrow.layout.walked
    return "high" if narrow.width <= 32 and not served else "medium"


def _waste(narrow: causes.Narrow) -> float:
    """How many times what is needed a request moves; all of a sector per element if unknown."""
    cost = narrow.cost
    if cost is None or not cost.sectors or not cost.ideal_sectors:
        return _SECTOR_BITS / narrow.width
    return cost.sectors / cost.ideal_sectors


def _is_alone(kernel: KernelContext) -> bool:
    """Whether a thread only loads 32 bits, and loops over nothing: too few bytes are in flight.

    2,048 threads per SM have 8 kB. With 128 bits instead, a square of 512 MiB took 37 % less time
    on an H200, which read and wrote 2.7 of 4.8 TB/s before. An A100 has half of that bandwidth per
    SM, other GPUs less: 8 kB suffice.
    """
    every = [c for each in kernel.global_accesses.values() for c in each]
    loads = [c for c in every if c.access.kind in ("load", "async-copy")]
    return (
        number_of(kernel.compiled.arch) in _MUCH_BANDWIDTH
        and 0 < kernel.bits_per_pass(loads) <= _WHOLE_BITS
        and not any(i.loop_depth for i in (kernel.code.ptx.instructions if kernel.code.ptx else ()))
        and all(c.access.kind in _MOVES for c in every)
    )


def _keeps_up(narrow: causes.Narrow, kernel: KernelContext) -> bool:
    """Whether memory is the limit though loads are narrow: 32 bits, all in use, many in flight.

    An arg max with 131 kB of such loads in flight per SM of an H200 read 3.7 of its 4.8 TB/s, and
    took the same time with 128 bits.
    """
    whole = narrow.cost is not None and not narrow.cost.is_uncoalesced
    loads = narrow.place[1] == "load" and narrow.width == 32
    return loads and whole and (kernel.bytes_in_flight or 0.0) >= ENOUGH_BYTES_IN_FLIGHT


def _follows_a_wider_type(narrow: causes.Narrow, kernel: KernelContext) -> bool:
    """Whether a small type moves in whole sectors beside full vectors of a larger one, as in casts.

    A thread has as many elements of both: with more of them the larger type gains nothing.
    """
    layout, provenance = narrow.layout, kernel.provenance
    whole = narrow.width >= _WHOLE_BITS and layout.lane == Stride(layout.width_bytes)
    if not whole or not provenance or kernel.compiled.is_cuda(narrow.place[0]):
        return False
    full = {
        (c.access.loop_depth, causes.WIDE_BITS // bits)
        for contexts in kernel.global_accesses.values()
        for c in contexts
        if c.access.kind in _MOVES and c.access.width_bits == causes.WIDE_BITS
        if (bits := provenance.element_bits_at(c.address) or 0) > 8 * layout.element_bytes
    }
    elements = layout.width_bytes // layout.element_bytes
    return all((each.loop_depth, elements) in full for each in narrow.accesses)


def _claim(
    group: Sequence[causes.Narrow],
    reason: causes.NarrowReason,
    severity: Severity,
    total_bits: int,
) -> CodeClaim:
    """The finding on one cause at all its lines; `total_bits` is what the kernel moves per pass."""
    # A line that touches several arrays is named once.
    at = dict.fromkeys((narrow.place[0], f"{KINDS[narrow.place[1]]} at ") for narrow in group)
    accesses = [access for narrow in group for access in narrow.accesses]
    several = len({narrow.width for narrow in group}) > 1
    values: dict[str, Value] = {
        "width_bits": max(narrow.width for narrow in group),
        "wanted_bits": causes.WIDE_BITS,
        "instructions": sum(access.count for access in accesses),
        "widths": widths_text(widths(accesses)),
        "traffic_pct": 100 * sum(n.moved for n in group) / total_bits if total_bits else 0.0,
        "cause": reason.cause or None,
        "proven": reason.proven,
    }
    if reason.widened_bits is not None:
        values["recompiled_width_bits"] = reason.widened_bits
    costs = [narrow.cost for narrow in group if narrow.cost and narrow.cost.sectors]
    for worst in sorted(costs, key=lambda cost: -(cost.sectors or 0))[:1]:
        values["sectors_per_request"] = worst.sectors
        values["ideal_sectors_per_request"] = worst.ideal_sectors
    apart = (n for n in group if n.layout.scattered or n.layout.threads_apart)
    # Sectors whose rest the other members of a structure use are no loss.
    whole = [n.used and n.used_fraction is not None for n in group]
    far = any(n.cost and n.cost.is_uncoalesced for n in apart) and not all(whole)
    likely = "" if reason.proven else "likely "
    because = f", {likely}because {reason.cause}" if reason.cause else ". The cause is not known"
    inlined = inlined_text(list(dict.fromkeys(line for each in group for line in each.helpers)))
    since = VECTORS_SINCE if any(each.place[1] == "atomic" for each in group) else ""
    return CodeClaim(
        _FAR_APART if far else _NARROW,
        values,
        "; ".join(filter(None, (inlined, reason.basis, since))),
        group[0].place[0],
        [line for line, _ in at],
        [lead for _, lead in at],
        words={"most": "up to " if several else "", "because": because},
        severity=severity,
        remedy=reason.remedy,
        tested=reason.remedies,
        otherwise=reason.otherwise,
    )


# Whoever called gets the output's rows as they are.
_GIVEN_SIZE = (
    "Leave {0} as it is where it is the output's size. Only if what reads the output takes a "
    "pitch, allocate rows of a multiple of 16 elements, and pass that pitch instead of {0}"
)


def _pitch_of_output(
    narrow: causes.Narrow, reason: causes.NarrowReason, kernel: KernelContext
) -> str:
    """The size that a proven remedy pads and that only addresses of stores contain, as a pitch.

    Empty if there is none, and for what is named as a stride, which says nothing of the size.
    """
    if narrow.place[1] != "store" or not kernel.provenance or not reason.proven:
        return ""
    padded = {n for each in reason.remedies for n in each.change.divisible}
    padded |= {n for each in reason.remedies for n, _ in each.change.constexprs}
    sizes = {a.name for a in narrow.suspects.address if not a.type.startswith("*")} & padded
    loaded = {
        argument.name
        for (place, _), contexts in kernel.global_accesses.items()
        for context in contexts
        if place[1] not in ("store", "atomic")
        for argument in kernel.provenance.named(context.address.parameters)
    }
    output = sizes - loaded
    named = any(map(causes.named_as_stride, output))
    is_pitch = output and output == padded and not named
    return causes.in_words(sorted(output)) if is_pitch else ""


# With 128 bits and as much work per block, four kernels on an H200 gained 0 to 2 %.
_COALESCED = (
    "Leave it: requests take whole sectors, and vectors of 16 bytes (such as float4) gain little"
)
_PACED = (
    "Leave it unless there are many more columns than threads on the GPU: with vectors of 16 bytes "
    "(such as float4) fewer threads walk down them"
)
_SLIGHT = "Leave it: this is so little of what the kernel moves that no change would show"

_REGISTERS = (
    "Leave it: with fewer warps or a larger block a thread would need more registers than it can "
    "have"
)
# Of a thread, since compute capability 3.5.
_MOST_REGISTERS = 255


def _fills_registers(kernel: KernelContext) -> bool:
    """Whether half as many warps, each with twice as many elements, would spill registers."""
    resources = kernel.code.resources
    return resources is not None and 2 * resources.registers > _MOST_REGISTERS


def _reason(
    narrow: causes.Narrow, kernel: KernelContext, *, tiled: bool, slightest: bool
) -> causes.NarrowReason:
    if slightest:
        # Its cause is worth no recompilation.
        inferred = inferred_reason(narrow, kernel.compiled, tried=False)
        return replace(inferred, remedy=_SLIGHT, kept=True)
    sm_count = kernel.sms.count if kernel.sms else None
    reason = reason_of(narrow, kernel.compiled, kernel.trials, tiled=tiled, sm_count=sm_count)
    if reason.sized and not reason.remedies and _fills_registers(kernel):
        return replace(reason, remedy=_REGISTERS, kept=True)
    if pitch := _pitch_of_output(narrow, reason, kernel):
        return replace(reason, remedy=_GIVEN_SIZE.format(pitch), remedies=(), kept=True)
    return reason

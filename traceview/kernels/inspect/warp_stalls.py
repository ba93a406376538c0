"""What the warps of a kernel wait for, by source line, from samples of a run.

A warp that waits for data is sampled at the instruction that needs it. The machine code tells which
instructions that one waits for; their lines are what keeps the warp.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from traceview.base import units
from traceview.base.errors import InputError
from traceview.base.findings import Finding
from traceview.kernels.inspect.kernel_report import (
    AwaitedPlace,
    CodePlace,
    KernelReport,
    StalledPlace,
    WarpStalls,
    line_name,
    source_of,
)
from traceview.kernels.ptx.cubin import machine_code
from traceview.kernels.ptx.disassembly import access_of
from traceview.kernels.ptx.live_registers import written_registers
from traceview.kernels.ptx.model import Function, Instruction, SourceLine
from traceview.kernels.ptx.scoreboards import INSTRUCTION_BYTES, PRODUCTS, Scoreboards
from traceview.traces.trace.warp_samples import KernelSamples, Stalls

_LETTERS, _MOST_NAMES = 60, 8
_SCOREBOARDS = ("long_scoreboard", "short_scoreboard")
# A wait for matrix products of a warp group has the reason of a wait for other warps.
_OF_PRODUCTS = "barrier"
_PADDING = ("NOP", "BRA")
# A long scoreboard is one of the L1 cache's unit, which serves all memory but shared memory.
_L1 = frozenset(("global", "local", "generic", "texture", "surface"))
_COPY_GROUP = "LDGDEPBAR"
_PHASE_TEST, _BULK_COPIES = "SYNCS.PHASECHK", ("UTMALDG", "UBLKCP")
_MOST_UNKNOWN_PCT = 5.0
"""Chosen, not measured: of the code that ran no line is unknown, of an edited file most are."""

# As of kernels that ran before proton.start() of Triton 3.6.
_NO_LINES = "without a line: start Proton before the first launch"

_Sampled = tuple[CodePlace, Sequence[int], Stalls]


def with_samples(
    kernels: Sequence[KernelReport],
    samples: Sequence[KernelSamples],
    path: Path,
    note: Callable[[str], None],
) -> tuple[KernelReport, ...]:
    """The kernels, each with what its warps wait for by the samples of the file `path`.

    Findings on a line tell how many samples wait for it. `note` gets a line per kernel that has no
    samples, or many at unknown lines. Raises InputError if none are of these kernels and their
    code.
    """
    joined = [_joined(kernel, samples, note) for kernel in kernels]
    if not any(joined):
        raise InputError(*_unmatched(kernels, samples, path))
    for kernel in (kernel for kernel, found in zip(kernels, joined, strict=True) if not found):
        note(f"{path.name} has no samples of {kernel.short_name} as compiled here")
    return tuple(found or kernel for kernel, found in zip(kernels, joined, strict=True))


def _joined(
    kernel: KernelReport, samples: Iterable[KernelSamples], note: Callable[[str], None]
) -> KernelReport | None:
    sass, cubin = kernel.sass, kernel.compiled.cubin
    if sass is None or cubin is None:
        return None
    code = machine_code(cubin, kernel.name)
    if len(code) < INSTRUCTION_BYTES * len(sass.instructions):
        return None
    found = next((s for s in samples if s.is_named(kernel.name) and _is_of(s, sass, code)), None)
    if found is None:
        return None
    boards = Scoreboards.of(sass, code)
    sampled = list(_places(found, sass))
    stalls = _stalls(sampled, sass, boards)
    unknown = sum(counts.total() for _, at, counts in sampled if found.by_line and not at)
    if 100 * unknown > _MOST_UNKNOWN_PCT * stalls.samples:
        share = units.percent(100 * unknown / stalls.samples)
        where = "at lines without code as compiled here" if any(found.by_line) else _NO_LINES
        note(
            f"{share} of the samples of {kernel.short_name} are {where}, "
            "so its findings are not weighed"
        )
        return replace(kernel, warp_stalls=stalls)
    apart = {
        source
        for place, listed, _ in sampled
        for source in {sass.instructions[at].source for at in listed} - {place.source}
    }
    awaited = {i.source for at, i in enumerate(sass.instructions) if _has_result(at, i, boards)}
    findings = tuple(
        _with_samples(each, line, stalls, line in awaited)
        if (line := source_of(each)) and line not in apart
        else each
        for each in kernel.findings
    )
    return replace(kernel, warp_stalls=stalls, findings=findings)


def _is_of(samples: KernelSamples, sass: Function, code: bytes) -> bool:
    """Whether samples by instruction are of this code, or any by line are of a line that it has."""
    if samples.by_line:
        lines, known = set(map(_key, filter(None, samples.by_line))), set(_by_line(sass))
        return not lines or not known or not lines.isdisjoint(known)
    if samples.machine_code:
        return samples.machine_code == code
    sampled = [(guard, opcode.partition(".")[0]) for guard, opcode in samples.opcodes]
    here = [(i.predicate, i.opcode.partition(".")[0]) for i in sass.instructions]
    rest = sampled[len(here) :]
    return sampled[: len(here)] == here and all(opcode in _PADDING for _, opcode in rest)


def _unmatched(
    kernels: Sequence[KernelReport], samples: Sequence[KernelSamples], path: Path
) -> tuple[str, str]:
    named = {each.symbol for each in samples if any(each.is_named(k.name) for k in kernels)}
    if named:
        what = f"the samples of {_listed(named)} in {path} are of other code than was compiled here"
        return what, "compile what ran: the same --arch, arguments and compiler"
    what = f"{path} has no samples of these kernels"
    return what, f"it has samples of {_listed({each.symbol for each in samples})}"


def _listed(names: Iterable[str]) -> str:
    first = [name[:_LETTERS] for name in sorted(names)]
    return ", ".join(first[:_MOST_NAMES]) + (" …" if len(first) > _MOST_NAMES else "")


def _stalls(sampled_places: Iterable[_Sampled], sass: Function, boards: Scoreboards) -> WarpStalls:
    stalls: dict[CodePlace, Stalls] = defaultdict(Counter)
    sampled: dict[CodePlace, dict[int, None]] = defaultdict(dict)
    awaited: dict[CodePlace, list[AwaitedPlace]] = defaultdict(list)
    for place, instructions, counts in sampled_places:
        stalls[place].update(counts)
        sampled[place].update(dict.fromkeys(instructions))
        for reason in (*_SCOREBOARDS, _OF_PRODUCTS):
            if counts[reason]:
                producers = _producers(instructions, reason, sass, boards)
                awaited[place] += _by_place(producers, reason, counts[reason], sass)
    places = (
        StalledPlace(
            place,
            _opcodes(sorted(sampled[place]), sass),
            dict(counts.most_common()),
            _merged(awaited[place]),
        )
        for place, counts in stalls.items()
    )
    return WarpStalls(tuple(sorted(places, key=lambda each: -each.samples)))


def _places(samples: KernelSamples, sass: Function) -> Iterator[_Sampled]:
    """Each place in a file with its instructions and samples."""
    code = sass.instructions
    for index, stalls in samples.by_index.items():
        if index is None:
            yield CodePlace(None), (), stalls
        else:
            # A warp that exits is sampled behind the exit.
            at = min(index, len(code) - 1)
            yield _place(at, sass), (at,), stalls
    by_line = _by_line(sass) if samples.by_line else {}
    for source, stalls in samples.by_line.items():
        instructions = by_line.get(_key(source), ()) if source else ()
        places = {_place(at, sass) for at in instructions}
        # The samples of a helper that is inlined at several lines are of none of these.
        yield places.pop() if len(places) == 1 else CodePlace(source), instructions, stalls


def _by_line(sass: Function) -> Mapping[tuple[str, int], Sequence[int]]:
    by_line: dict[tuple[str, int], list[int]] = defaultdict(list)
    for at, instruction in enumerate(sass.instructions):
        for key in {_key(line) for line in (instruction.source, *instruction.inlined) if line}:
            by_line[key].append(at)
    return by_line


def _place(at: int, sass: Function) -> CodePlace:
    source = sass.instructions[at].source
    return CodePlace(source, None if source else at * INSTRUCTION_BYTES)


def _key(line: SourceLine) -> tuple[str, int]:
    """A line without its folder, which depends on where and how it was compiled."""
    return PurePath(line.file).name, line.line


def _producers(
    instructions: Sequence[int], reason: str, sass: Function, boards: Scoreboards
) -> list[int]:
    """The instructions that others wait for, by the kind of scoreboard where that tells them."""
    awaited = sorted({each for at in instructions for each in boards.awaited(at)})
    products = [at for at in awaited if PRODUCTS in boards.sets[at]]
    if reason == _OF_PRODUCTS:
        # Of a line, other instructions may wait for other warps.
        return products if len(instructions) == 1 else []
    producers = [at for at in awaited if at not in products]
    tests = [at for at in producers if sass.instructions[at].opcode.startswith(_PHASE_TEST)]
    if arriving := sorted({each for at in tests for each in _arriving(at, sass)}):
        return arriving
    is_long = reason == _SCOREBOARDS[0]
    of_kind = [at for at in producers if _is_long(sass.instructions[at]) == is_long] or producers
    return sorted({each for at in of_kind for each in _copies(at, sass, boards) or (at,)})


def _arriving(test: int, sass: Function) -> Iterator[int]:
    """The bulk copies that complete a phase of the barrier in shared memory that is tested.

    Code announces the bytes of its copies to a barrier right before them.
    """
    announced, offset = False, _offset(sass.instructions[test])
    for at, instruction in enumerate(sass.instructions):
        if instruction.opcode.startswith("SYNCS.ARRIVE"):
            announced = _offset(instruction) == offset
        elif announced and instruction.opcode.startswith(_BULK_COPIES):
            yield at


def _offset(instruction: Instruction) -> str:
    """The constant part of the address: of [UR7+0x24000], +0x24000."""
    return instruction.operands.partition("[")[2].partition("]")[0].lstrip("UR0123456789")


def _copies(commit: int, sass: Function, boards: Scoreboards) -> set[int]:
    """The copies of the group that an instruction commits; none if it is no commit."""
    found, seen, waiting = set[int](), set[int](), [commit]
    while waiting and sass.instructions[commit].opcode == _COPY_GROUP:
        for at in set(boards.before.get(waiting.pop(), ())) - seen:
            seen.add(at)
            if _is_copy(sass.instructions[at]):
                found.add(at)
            if sass.instructions[at].opcode != _COPY_GROUP:
                waiting.append(at)
    return found


def _is_copy(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("LDGSTS")


def _is_long(instruction: Instruction) -> bool:
    access = access_of(instruction)
    return instruction.opcode == _COPY_GROUP or bool(access and access.space in _L1)


def _opcodes(instructions: Iterable[int], sass: Function) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sass.instructions[at].opcode for at in instructions))


def _by_place(
    producers: Iterable[int], reason: str, samples: int, sass: Function
) -> Iterator[AwaitedPlace]:
    by_place: dict[CodePlace, list[int]] = defaultdict(list)
    for at in producers:
        by_place[_place(at, sass)].append(at)
    for place, listed in by_place.items():
        yield AwaitedPlace(place, reason, _opcodes(listed, sass), samples)


def _merged(awaited: Iterable[AwaitedPlace]) -> tuple[AwaitedPlace, ...]:
    """Each place and reason once, that of the most samples first."""
    merged: dict[tuple[CodePlace, str], AwaitedPlace] = {}
    for each in awaited:
        same = merged.get((each.place, each.reason))
        if same:
            opcodes = tuple(dict.fromkeys((*same.opcodes, *each.opcodes)))
            each = replace(each, opcodes=opcodes, samples=same.samples + each.samples)
        merged[each.place, each.reason] = each
    return tuple(sorted(merged.values(), key=lambda each: -each.samples))


def _has_result(at: int, instruction: Instruction, boards: Scoreboards) -> bool:
    """Whether a later instruction can wait for the data of this one."""
    result = bool(boards.sets[at]) and any(True for _ in written_registers(instruction))
    return result or _is_copy(instruction)


def _with_samples(
    finding: Finding, source: SourceLine, stalls: WarpStalls, is_awaited: bool
) -> Finding:
    """The finding with the samples that wait for its line, if any can, and of the line itself."""
    (reason, waiting), there = stalls.waiting_for(source), stalls.pct_at(source)
    values = {**finding.evidence.values, "samples_at_line_pct": there}
    said = f"{units.percent(there)} of warp samples are at {line_name(source)}"
    if is_awaited or waiting:
        values["samples_waiting_pct"] = waiting
        why = f" ({reason.replace('_', ' ')})" if reason else ""
        said = (
            f"{units.percent(waiting)} of warp samples wait for {line_name(source)}{why}, "
            f"{units.percent(there)} are at it"
        )
    basis = "; ".join(filter(None, (finding.evidence.basis, said)))
    return replace(finding, evidence=replace(finding.evidence, values=values, basis=basis))

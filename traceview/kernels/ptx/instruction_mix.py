"""Instructions of a kernel counted by class and line, and its heaviest path."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import pairwise

from traceview.base.records import record
from traceview.kernels.ptx.lexer import ARITHMETIC, SPECIAL_FUNCTIONS, family, words
from traceview.kernels.ptx.loops import Edges, Jump, LoopNest, block_edges, block_starts, loop_nest
from traceview.kernels.ptx.model import Function, Instruction, Level, SourceLine

# Classes of instructions, the same for PTX and SASS.
#
# Names of SASS instructions are those of NVIDIA's "CUDA Binary Utilities". Idioms of ptxas count
# as what they do: `IMAD.MOV.U32 R2, RZ, RZ, R3` is a move, `HADD2.F32 R2, -RZ, R3.H0_H0` a
# conversion.

CLASSES = (
    *("global load", "global store", "shared load", "shared store", "local load", "local store"),
    *("async copy", "atomic", "tensor memory", "MMA", "fp32", "fp16", "fp64", "integer"),
    *("conversion", "special function", "shuffle", "barrier", "control", "move", "other"),
)
"""All classes, in listing order. "integer" includes addresses, logic and selection."""

_SASS_ROOTS: Mapping[str, str] = {
    "global load": "LD LDG LDGMC TEX TLD TLD4 TXD SULD",
    "global store": "ST STG SUST",
    "shared load": "LDS LDSM",
    "shared store": "STS STSM STAS",
    "local load": "LDL",
    "local store": "STL",
    "async copy": "LDGSTS UBLKCP UBLKRED UBLKPF UTMALDG UTMASTG UTMAREDG UTMAPF",
    "atomic": "ATOM ATOMG ATOMS RED REDG REDS REDAS SUATOM SURED",
    "tensor memory": "LDTM STTM LDT STT UTCCP UTCSHIFT",
    "MMA": "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA QGMMA BGMMA "
    "UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCMXQMMA",
    "fp32": "FADD FADD32I FFMA FFMA32I FMUL FMUL32I FMNMX FMNMX3 FSEL FSET FSETP FCHK FSWZADD "
    "FADD2 FMUL2 FFMA2 FCMP",
    "fp16": "HADD2 HADD2_32I HFMA2 HFMA2_MMA HFMA2_32I HMUL2 HMUL2_32I HMNMX2 HSET2 HSETP2",
    "fp64": "DADD DFMA DMUL DMNMX DSET DSETP",
    "integer": "IADD IADD2 IADD3 IADD32I IMAD IMUL IMNMX VIMNMX VIMNMX3 VIADD VIADDMNMX VHMNMX "
    "VABSDIFF VABSDIFF4 LEA LOP LOP3 LOP32I SHF SHL SHR ISETP ISET ICMP SEL PRMT POPC FLO BREV "
    "BMSK SGXT SGXTN IABS IDP IDP4A XMAD BFE BFI ISCADD PLOP3 PSETP P2R R2P IMNMX3",
    "conversion": "F2F F2FP F2I F2IP I2F I2FP I2I I2IP FRND",
    "special function": "MUFU",
    "shuffle": "SHFL VOTE VOTEU MATCH REDUX CREDUX ELECT",
    "barrier": "BAR DEPBAR LDGDEPBAR MEMBAR ERRBAR CGAERRBAR FENCE SYNCS ARRIVES WARPGROUP "
    "WARPGROUPSET WARPSYNC NANOSLEEP UTCBAR CGABAR CGABAR_ARV CGABAR_WAIT CGABAR_GET CGABAR_SET "
    "ACQBULK PREEXIT CCTL CCTLL CCTLT UTMACMDFLUSH UTMACCTL UTCATOMSWS UTCCTRL",
    "control": "BRA BRX BRXU JMP JMX JMXU JCAL EXIT RET CALL BSSY BSYNC BREAK BMOV RPCMOV KILL "
    "YIELD USETMAXREG BPT RTT ENDCOLLECTIVE COLLECTIVE SSY SYNC PBK BRK",
    "move": "MOV MOV32I MOVM CS2R S2R LDC LDCU R2UR UR2UP UP2UR P2UR B2R R2B LEPC GETLMEMBASE "
    "SETLMEMBASE SETCTAID CS2UR S2UR MOV64IUR",
}
_CLASS_OF_ROOT = {root: name for name, roots in _SASS_ROOTS.items() for root in roots.split()}
# SASS writes a register of zeros as RZ; a sum with it, or a product with two, computes nothing.
_ZEROS = re.compile(r"^\w+, -?RZ, (?:-?RZ, |R)")
_OF_FAMILY = {
    "atomic": "atomic",
    "tensor-core": "MMA",
    "shuffle": "shuffle",
    "barrier": "barrier",
    "special-function": "special function",
    "control": "control",
    "integer": "integer",
}


def class_of(instruction: Instruction, level: Level) -> str:
    """The class of an instruction. One that no thread executes (`@!PT`) is "other"."""
    if instruction.predicate == "!PT":
        return "other"
    if level == "ptx":
        return _of_ptx(instruction.opcode)
    root, *modifiers = instruction.opcode.split(".")
    name = _CLASS_OF_ROOT.get(root) or _CLASS_OF_ROOT.get(root.removeprefix("U"), "other")
    if root == "IMAD" and modifiers[:1] in (["MOV"], ["U32"]) and "RZ, RZ" in instruction.operands:
        return "move"
    if name == "fp16" and _ZEROS.match(instruction.operands):
        return "conversion" if "F32" in modifiers else "move"
    return name


def _of_ptx(opcode: str) -> str:
    parts = words(opcode)
    kind = family(opcode)
    if parts.root in ("ldmatrix", "stmatrix"):
        return "shared load" if parts.root == "ldmatrix" else "shared store"
    if kind in ("load", "store"):
        place = parts.space if parts.space in ("shared", "local") else "global"
        return "move" if parts.space == "const" else f"{place} {kind}"
    if parts.root in ("wgmma", "tcgen05"):
        if parts.modifiers[:1] in (("mma_async",), ("mma",)):
            return "MMA"
        return "tensor memory" if parts.modifiers[:1] in (("ld",), ("st",), ("cp",)) else "barrier"
    if kind == "async-copy":
        waits = {"commit_group", "wait_group", "wait_all", "mbarrier"}
        return "barrier" if waits & set(parts.modifiers[:3]) else "async copy"
    if kind == "conversion":
        return "conversion" if parts.root == "cvt" else "integer"
    if parts.root in ARITHMETIC and kind == "float":
        type_ = parts.types[-1]
        if type_.endswith("64"):
            return "fp64"
        return "fp16" if "16" in type_ else "fp32"
    if parts.root in SPECIAL_FUNCTIONS and parts.types[-1:] == ("f64",):
        return "fp64"
    return _OF_FAMILY.get(kind, "move" if parts.root in ("mov", "ld", "st") else "other")


# Counts of instructions by class: of a function, per source line, and per loop.

_WORK = frozenset(CLASSES[:13]) - {"integer"}
"""Classes of useful work: a loop with a barrier and without any only polls, as for free memory."""
_LOCK = {"atomic", "shared load", "shared store"}
"""The classes of a loop that polls for a lock: Triton hands the atomic's result to all threads."""


@record
class ClassCounts:
    """Instructions by class, in the order of CLASSES; classes without any are left out."""

    by_class: Mapping[str, int]

    @classmethod
    def of(cls, classes: Iterable[str]) -> ClassCounts:
        """Count a sequence of class names, one per instruction."""
        counts = Counter(classes)
        return cls({name: counts[name] for name in CLASSES if counts[name]})

    @property
    def total(self) -> int:
        """The number of instructions of all classes."""
        return sum(self.by_class.values())


@record
class LoopMix:
    """The instructions of a loop, those of inner loops included.

    `source` is the line of its back edge, normally the `for`; `depth` counts from 1; `header` is
    the index of its first instruction.
    """

    header: int
    source: SourceLine | None
    depth: int
    counts: ClassCounts
    instructions: frozenset[int]


@record
class LineMix:
    """The instructions of a source line. `loop_depth` is that of its deepest instruction.

    `in_hottest_loop` is the number of its instructions that are in the hottest loop.
    """

    source: SourceLine | None
    loop_depth: int
    counts: ClassCounts
    in_hottest_loop: int


@record
class InstructionMix:
    """The instructions of a kernel by class, for all of it and for its parts.

    `loops` are in program order, without those that only poll for a barrier or a lock; `lines` are
    by file and line.
    """

    level: Level
    counts: ClassCounts
    loops: tuple[LoopMix, ...]
    lines: tuple[LineMix, ...]

    @cached_property
    def hottest_loop(self) -> LoopMix | None:
        """The loop that likely takes the time; None without a loop."""
        return hottest(self.loops)


def hottest(loops: Sequence[LoopMix]) -> LoopMix | None:
    """The most deeply nested loop; among equals one with matrix products, then the largest.

    The code does not contain trip counts, so nesting stands in for them.
    """

    def heat(loop: LoopMix) -> tuple[int, bool, int]:
        return loop.depth, "MMA" in loop.counts.by_class, loop.counts.total

    return max(loops, key=heat, default=None)


def instruction_mix(function: Function) -> InstructionMix:
    """The mix of a PTX or SASS function."""
    code = function.instructions
    classes = [class_of(instruction, function.level) for instruction in code]
    loops = tuple(_loops(function, classes))
    lines = tuple(_lines(code, classes, hottest(loops)))
    return InstructionMix(function.level, ClassCounts.of(classes), loops, lines)


def _loops(function: Function, classes: Sequence[str]) -> Iterator[LoopMix]:
    nest = loop_nest(len(classes), function.jumps)
    for header in sorted(nest.outer):
        inside = nest.within(header)
        counts = ClassCounts.of(classes[at] for at in inside)
        if not _polls(counts.by_class.keys()):
            source = _source(function, header, inside)
            yield LoopMix(header, source, nest.depth(header), counts, frozenset(inside))


def _polls(classes: Set[str]) -> bool:
    work = classes & _WORK
    return work == _LOCK or (not work and ("barrier" in classes or "integer" not in classes))


def _source(function: Function, header: int, inside: Sequence[int]) -> SourceLine | None:
    """The line of the jump back to the header; the first line of the loop if it has none."""
    body = set(inside)
    back = [
        function.instructions[jump.at].source
        for jump in function.jumps
        if header in jump.targets and jump.at in body
    ]
    known = Counter(source for source in back if source)
    if known:
        return known.most_common(1)[0][0]
    lines = [source for at in inside if (source := function.instructions[at].source)]
    return min(lines, key=lambda source: (source.file, source.line), default=None)


def _lines(
    code: Sequence[Instruction], classes: Sequence[str], hot: LoopMix | None
) -> Iterator[LineMix]:
    places: dict[SourceLine | None, list[int]] = defaultdict(list)
    for at, instruction in enumerate(code):
        places[instruction.source].append(at)
    inside = hot.instructions if hot else frozenset()
    for source in sorted(places, key=_order):
        at_line = places[source]
        yield LineMix(
            source,
            max(code[at].loop_depth for at in at_line),
            ClassCounts.of(classes[at] for at in at_line),
            len(inside.intersection(at_line)),
        )


def _order(source: SourceLine | None) -> tuple[bool, str, int]:
    return (source is None, *((source.file, source.line) if source else ("", 0)))


Cycle = frozenset[int]


def heaviest(weights: Sequence[int], jumps: Sequence[Jump]) -> int | None:
    """The greatest sum of weights (one per instruction) on a path from the first to an end.

    None if an instruction with a weight is in a loop, as trip counts are not known. A predicated
    instruction counts in full.
    """
    starts = block_starts(len(weights), jumps)
    edges = block_edges(starts, jumps)
    own = [sum(weights[begin:end]) for begin, end in pairwise(starts)] + [0]
    cycles = list(_components(edges, 0))
    for cycle in cycles:
        is_loop = len(cycle) > 1 or any(block in edges[block] for block in cycle)
        if is_loop and any(own[block] for block in cycle):
            return None
    return sum(own[block] for block in _heaviest_blocks(cycles, edges, own))


@record
class Passes:
    """Instructions that a thread executes in one pass of a loop: one path through its body.

    Of alternatives (`if` and `else`, an unrolled loop and the loop for its remainder) a thread
    takes one.
    """

    function: Function

    @cached_property
    def _at(self) -> dict[int, int]:
        # By identity: inline assembly may repeat an instruction on one line of the text.
        return {id(instruction): at for at, instruction in enumerate(self.function.instructions)}

    @cached_property
    def _graph(self) -> tuple[LoopNest, list[list[int]], list[int]]:
        """The loops, the edges between blocks, and the block of each instruction."""
        count, jumps = len(self.function.instructions), self.function.jumps
        starts = block_starts(count, jumps)
        blocks = enumerate(pairwise(starts))
        block_of = [block for block, (begin, end) in blocks for _ in range(begin, end)]
        return loop_nest(count, jumps), block_edges(starts, jumps), block_of

    def heaviest(self, weights: Iterable[tuple[Instruction, int]]) -> list[Instruction]:
        """The given instructions that one pass of their innermost loop executes, in order.

        Of all passes, the one with the greatest sum of weights counts. Instructions outside the
        deepest of the loops are left out.
        """
        nest = self._graph[0]
        by_loop: dict[int | None, dict[int, int]] = {}
        for instruction, weight in weights:
            at = self._at[id(instruction)]
            by_loop.setdefault(nest.innermost[at], {})[at] = weight
        depths = {loop: 0 if loop is None else nest.depth(loop) for loop in by_loop}
        deepest = [loop for loop, depth in depths.items() if depth == max(depths.values())]
        passes = [self._pass(loop, by_loop[loop]) for loop in deepest]
        best = max(passes, key=lambda path: sum(path.values()), default={})
        return [self.function.instructions[at] for at in sorted(best)]

    def _pass(self, loop: int | None, weighed: dict[int, int]) -> dict[int, int]:
        """The weights, by instruction, on the heaviest path from the loop's header."""
        nest, edges, block_of = self._graph
        if len({block_of[at] for at in weighed}) == 1:
            return weighed
        first = 0
        if loop is not None:
            first, inside = block_of[loop], {block_of[at] for at in nest.within(loop)}
            # Edges to the header begin the loop's next pass.
            after = inside - {first}
            edges = [
                [successor for successor in successors if successor in after]
                if block in inside
                else []
                for block, successors in enumerate(edges)
            ]
        own = [0] * len(edges)
        for at, weight in weighed.items():
            own[block_of[at]] += weight
        path = _heaviest_blocks(list(_components(edges, first)), edges, own)
        return {at: weight for at, weight in weighed.items() if block_of[at] in path}


def _heaviest_blocks(cycles: Iterable[Cycle], edges: Edges, own: Sequence[int]) -> set[int]:
    """The blocks on the heaviest path; `cycles` are the graph's components, successors first."""
    most: dict[int, int] = {}
    following: dict[Cycle, int | None] = {}
    cycle_of: dict[int, Cycle] = {}
    last: Cycle | None = None
    for last in cycles:
        after = [each for block in last for each in edges[block] if each not in last]
        best = max(after, key=lambda each: most[each], default=None)
        following[last] = best
        total = sum(own[block] for block in last) + (most[best] if best is not None else 0)
        for block in last:
            most[block], cycle_of[block] = total, last
    path: set[int] = set()
    while last is not None:
        path |= last
        best = following[last]
        last = cycle_of[best] if best is not None else None
    return path


def _components(edges: Edges, first: int) -> Iterator[Cycle]:
    """The strongly connected components reachable from a block, successors first.

    Tarjan's algorithm with an explicit stack, as generated code nests to any depth.
    """
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[int] = []
    waiting = [(first, iter(edges[first]))]
    closed: set[int] = set()
    while waiting:
        block, successors = waiting[-1]
        if block not in number:
            number[block] = low[block] = len(number)
            open_.append(block)
        for successor in successors:
            if successor not in number:
                waiting.append((successor, iter(edges[successor])))
                break
            if successor not in closed:
                low[block] = min(low[block], number[successor])
        else:
            waiting.pop()
            if waiting:
                above = waiting[-1][0]
                low[above] = min(low[above], low[block])
            if low[block] == number[block]:
                at = open_.index(block)
                closed.update(open_[at:])
                yield frozenset(open_[at:])
                del open_[at:]

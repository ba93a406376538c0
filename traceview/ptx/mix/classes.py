"""Classes of instructions, the same for PTX and SASS.

Names of SASS instructions are those of NVIDIA's "CUDA Binary Utilities". Idioms of ptxas count as
what they do: `IMAD.MOV.U32 R2, RZ, RZ, R3` is a move, `HADD2.F32 R2, -RZ, R3.H0_H0` a conversion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from traceview.ptx.model import Instruction, Level
from traceview.ptx.opcodes import ARITHMETIC, SPECIAL_FUNCTIONS, family, words

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
    return _of_sass(instruction.opcode, instruction.operands)


def _of_sass(opcode: str, operands: str) -> str:
    root, *modifiers = opcode.split(".")
    name = _CLASS_OF_ROOT.get(root) or _CLASS_OF_ROOT.get(root.removeprefix("U"), "other")
    if root == "IMAD" and modifiers[:1] in (["MOV"], ["U32"]) and "RZ, RZ" in operands:
        return "move"
    if name == "fp16" and _ZEROS.match(operands):
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
        return _of_tensor_core(parts.modifiers)
    if kind == "async-copy":
        return _of_copy(parts.modifiers)
    if kind == "conversion":
        return "conversion" if parts.root == "cvt" else "integer"
    if parts.root in ARITHMETIC and kind == "float":
        return _of_float(parts.types[-1])
    if parts.root in SPECIAL_FUNCTIONS and parts.types[-1:] == ("f64",):
        return "fp64"
    return _OF_FAMILY.get(kind, "move" if parts.root in ("mov", "ld", "st") else "other")


def _of_tensor_core(modifiers: tuple[str, ...]) -> str:
    if modifiers[:1] in (("mma_async",), ("mma",)):
        return "MMA"
    return "tensor memory" if modifiers[:1] in (("ld",), ("st",), ("cp",)) else "barrier"


def _of_copy(modifiers: tuple[str, ...]) -> str:
    waits = {"commit_group", "wait_group", "wait_all", "mbarrier"}
    return "barrier" if waits & set(modifiers[:3]) else "async copy"


def _of_float(type_: str) -> str:
    if type_.endswith("64"):
        return "fp64"
    return "fp16" if "16" in type_ else "fp32"

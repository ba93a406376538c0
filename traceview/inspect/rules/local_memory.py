"""Local memory that is no spill: what lies there, and how to do without it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from traceview.inspect.kernel_report import Finding, where
from traceview.ptx.model import Function, Instruction, SourceLine

# libdevice's sine, cosine and tangent, and CUDA's: 2/π in many digits, and who reads those.
_ANGLES = re.compile(r"__cudart_i2opi_\w+|__internal_trig_reduction\w+")
_IN_FP64 = re.compile(r"__cudart_i2opi_d|__internal_trig_reduction_slowpathd")
_PRINTS = re.compile(r"\bvprintf\b")
_MOST_LINES = 3


class _MadeOut(NamedTuple):
    """What a stack frame holds, `{}` being where, what to do, and what in the PTX shows it."""

    holds: str
    action: str
    shown_by: tuple[Instruction, ...] = ()
    symbol: str = ""


def stack_finding(stack_bytes: int, ptx: Function | None) -> Finding:
    """What a stack frame of so many bytes a thread is for, as far as the PTX tells."""
    instructions = ptx.instructions if ptx else ()
    triton = any(i.source.file.endswith(".py") for i in instructions if i.source)
    made_out = (
        _angles(instructions, triton=triton)
        or _prints(instructions, triton=triton)
        or _array(instructions, triton=triton)
    )
    lines = list(dict.fromkeys(i.source for i in made_out.shown_by if i.source))
    holds = made_out.holds.format(f" at {_told(lines)}" if lines else "")
    symbol = f", and {made_out.symbol} in its PTX" if made_out.symbol else ""
    return Finding(
        "low",
        f"{stack_bytes:,} bytes a thread lie in local memory without a spill: {holds}",
        made_out.action,
        f"the stack frame in the compiled kernel{symbol}",
        lines[0] if lines else None,
    )


def _angles(instructions: Iterable[Instruction], *, triton: bool) -> _MadeOut | None:
    there, symbol = _naming(_ANGLES, instructions)
    if not there:
        return None
    fast = "libdevice.fast_sinf, fast_cosf or fast_tanf" if triton else "__sinf, __cosf or __tanf"
    of = " in fp32" if _naming(_IN_FP64, there)[0] else ""
    return _MadeOut(
        "a sine, cosine or tangent computed{} reduces large angles there",
        f"Where angles stay small and six digits will do, use {fast}{of}, without such room",
        there,
        symbol,
    )


def _prints(instructions: Iterable[Instruction], *, triton: bool) -> _MadeOut | None:
    there, symbol = _naming(_PRINTS, instructions)
    printed = "tl.device_print" if triton else "printf"
    holds = f"what {printed}{{}} prints is put there"
    action = f"Leave {printed} out once the kernel is debugged"
    return _MadeOut(holds, action, there, symbol) if there else None


def _array(instructions: Iterable[Instruction], *, triton: bool) -> _MadeOut:
    there = tuple(i for i in instructions if i.opcode.startswith(("ld.local", "st.local")))
    if triton:
        return _MadeOut(
            "likely an array of a library function{}, as Triton has none of its own",
            "Use a function of fewer digits if that will do (libdevice.fast_…)",
            there,
        )
    return _MadeOut(
        "likely an array indexed at run time{}",
        "Unroll the loop that indexes the array, so that it can live in registers",
        there,
    )


def _naming(
    symbols: re.Pattern[str], instructions: Iterable[Instruction]
) -> tuple[tuple[Instruction, ...], str]:
    """The instructions that name such a symbol, and the first that is named."""
    found = [(i, symbol[0]) for i in instructions if (symbol := symbols.search(i.operands))]
    return tuple(instruction for instruction, _ in found), found[0][1] if found else ""


def _told(lines: list[SourceLine]) -> str:
    more = len(lines) - _MOST_LINES
    shown = " and ".join(map(where, lines[:_MOST_LINES]))
    return f"{shown} and {more} more line{'s' if more > 1 else ''}" if more > 0 else shown

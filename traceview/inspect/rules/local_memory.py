"""Local memory that is not spilled registers: what uses it, and how to avoid it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from traceview.findings import Evidence, Finding
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.kernel_report import subject_of
from traceview.inspect.rules.source_lines import lines_in_message
from traceview.ptx.model import Instruction

# Sine, cosine and tangent of libdevice and CUDA: the table of 2/π, and the functions that read it.
_ANGLES = re.compile(r"__cudart_i2opi_\w+|__internal_trig_reduction\w+")
_IN_FP64 = re.compile(r"__cudart_i2opi_d|__internal_trig_reduction_slowpathd")
_PRINTS = re.compile(r"\bvprintf\b")


class _Use(NamedTuple):
    """The use of a stack frame, with `{at}` for its place, and the instructions that show it."""

    template: str
    remedy: str
    shown_by: tuple[Instruction, ...] = ()
    symbol: str = ""


def local_memory(kernel: KernelContext) -> Iterator[Finding]:
    """A stack frame without spills, and what it is used for as far as the PTX shows."""
    resources, ptx = kernel.code.resources, kernel.code.ptx
    if kernel.spill_bytes or resources is None or not resources.stack_bytes:
        return
    instructions = ptx.instructions if ptx else ()
    triton = any(not kernel.is_cuda(i.source) for i in instructions if i.source)
    use = (
        _angles(instructions, triton=triton)
        or _prints(instructions, triton=triton)
        or _array(instructions, triton=triton)
    )
    lines = list(dict.fromkeys(i.source for i in use.shown_by if i.source))
    listed, values = lines_in_message(lines)
    symbol = f", and {use.symbol} in its PTX" if use.symbol else ""
    yield Finding(
        "low",
        "Each thread uses {stack_bytes:byte} of local memory, though nothing spills: "
        + use.template.replace("{at}", f" at {listed}" if lines else ""),
        use.remedy,
        subject=subject_of(lines[0] if lines else None, kernel.compiled),
        evidence=Evidence(
            {"stack_bytes": resources.stack_bytes, **values},
            basis=f"the stack frame in the compiled kernel{symbol}",
        ),
    )


def _angles(instructions: Iterable[Instruction], *, triton: bool) -> _Use | None:
    instructions_shown, symbol = _naming(_ANGLES, instructions)
    if not instructions_shown:
        return None
    fast = "libdevice.fast_sinf, fast_cosf or fast_tanf" if triton else "__sinf, __cosf or __tanf"
    of = " in fp32" if _naming(_IN_FP64, instructions_shown)[0] else ""
    return _Use(
        "a sine, cosine or tangent{at} reduces large angles there",
        f"If angles stay small and six digits suffice, use {fast}{of}, which need no local memory",
        instructions_shown,
        symbol,
    )


def _prints(instructions: Iterable[Instruction], *, triton: bool) -> _Use | None:
    instructions_shown, symbol = _naming(_PRINTS, instructions)
    printed = "tl.device_print" if triton else "printf"
    template = f"it holds the arguments of {printed}{{at}}"
    remedy = f"Remove {printed} once the kernel is debugged"
    return _Use(template, remedy, instructions_shown, symbol) if instructions_shown else None


def _array(instructions: Iterable[Instruction], *, triton: bool) -> _Use:
    instructions_shown = tuple(
        i for i in instructions if i.opcode.startswith(("ld.local", "st.local"))
    )
    if triton:
        return _Use(
            "likely an array of a library function{at}, as Triton has no local arrays",
            "Use a less precise function if that suffices (libdevice.fast_…)",
            instructions_shown,
        )
    return _Use(
        "likely an array indexed at run time{at}",
        "Unroll the loop that indexes the array, so that it can live in registers",
        instructions_shown,
    )


def _naming(
    symbols: re.Pattern[str], instructions: Iterable[Instruction]
) -> tuple[tuple[Instruction, ...], str]:
    """The instructions whose operands name one of the symbols, and the first symbol named."""
    matches = [(i, symbol[0]) for i in instructions if (symbol := symbols.search(i.operands))]
    return tuple(instruction for instruction, _ in matches), matches[0][1] if matches else ""

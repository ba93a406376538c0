"""Spilled values: their bytes against what ptxas says, their lines by hand."""

import re

import pytest

from tests.inspect.rules.written_ptx import need, spills_counted
from tests.places import PTX_FILES
from tests.ptx.sass.test_live_registers import HEAD
from traceview.kernels.ptx.disassembly import parse, with_sources_of
from traceview.kernels.ptx.live_registers import spilled_values
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.toolchain.listings import assemble, disassemble

LISTING = """	//## File "k.py", line 3
        /*0000*/   FADD R4, R2, R3 ;
	//## File "k.py", line 4
        /*0010*/   FMUL R6, R2, R3 ;
        /*0020*/   FMUL R7, R2, R3 ;
	//## File "k.py", line 9
        /*0030*/   STL [R1], R4 ;
        /*0040*/   STL.64 [R1+0x8], R6 ;
        /*0050*/   LDL.LU R5, [R1] ;
        /*0060*/   LDL.64 R8, [R1+0x8] ;
	//## File "k.py", line 10
        /*0070*/   STL [R1], R8 ;
        /*0080*/   STG.E [R2.64], R5 ;
        /*0090*/   EXIT ;
"""


def test_a_value_belongs_to_the_line_that_computes_it():
    (function,) = parse(HEAD.replace(".type k", "        .type           k") + LISTING).functions
    four, three = spilled_values(function, {6})
    assert (four.source, three.source) == (SourceLine("k.py", 4), SourceLine("k.py", 3))
    # What returned from the stack and is stored again is still that of line 4.
    assert (four.store_bytes, four.load_bytes, four.loads, four.in_hottest_loop) == (12, 8, 1, 1)
    assert (three.store_bytes, three.load_bytes, three.loads, three.in_hottest_loop) == (4, 4, 1, 0)


@pytest.mark.parametrize(
    ("name", "registers"),
    [("matmul-3.7.1-sm80", 28), ("matmul-3.7.1-sm80", 32), ("matmul-3.7.1-sm80", 40)],
)
def test_bytes_are_those_that_ptxas_counts(name, registers):
    need("ptxas", "nvdisasm")
    text = (PTX_FILES / f"{name}.ptx").read_text()
    ptx = re.sub(r"(\.reqntid \d+)", rf"\1\n.maxnreg {registers}", text)
    assembled = assemble(ptx)
    (function,) = with_sources_of(disassemble(assembled.cubin), parse_ptx(ptx)).kernels()
    found = spilled_values(function, range(len(function.instructions)))
    ((stored, loaded),) = spills_counted(assembled)
    assert sum(value.store_bytes for value in found) == stored > 0
    assert sum(value.load_bytes for value in found) == loaded > 0
    assert all(value.loads == value.in_hottest_loop for value in found)

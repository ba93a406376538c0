"""The branches that decide whether an instruction of a PTX function runs."""

import pytest

from tests.ptx.compiled_kernels import ptx_kernel
from traceview.kernels.ptx.branches import Branches
from traceview.kernels.ptx.parser import parse_ptx

STORE = "st.global.b32 [%rd1], %r9;"
TEST = "setp.lt.s32 %p1, %r1, %r2;"


def around(body):
    """The lines of branches around the only store, counted in the body, and where it runs."""
    text = ptx_kernel(body)
    (function,) = parse_ptx(text, "k").kernels()
    (store,) = (i for i in function.instructions if i.opcode.startswith("st."))
    first = text[: text.index(body)].count("\n")
    return [(b.line - first, jumps) for b, jumps in Branches(function).around(store)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{TEST}\n@%p1 bra $L;\n{STORE}\n$L: ret;", [(2, False)]),
        (f"{TEST}\n@%p1 bra $L;\nbra.uni $E;\n$L: {STORE}\n$E: ret;", [(2, True)]),
        (f"{TEST}\n@%p1 bra $L;\nadd.s32 %r1, %r1, 1;\n$L: {STORE}\nret;", []),
        # The end of a loop decides nothing, and what is in another loop nothing behind it.
        (f"$L: {STORE}\n{TEST}\n@%p1 bra $L;\nret;", []),
        (f"$L: {TEST}\n@%p1 bra $N;\nadd.s32 %r1, %r1, 1;\n$N: {TEST}\n@%p1 bra $L;\n{STORE}", []),
        (f"$L: {TEST}\n@%p1 bra $N;\n{STORE}\n$N: {TEST}\n@%p1 bra $L;\nret;", [(2, False)]),
    ],
)
def test_one_way_behind_a_branch(body, expected):
    assert around(body) == expected

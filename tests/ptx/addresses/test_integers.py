"""Integer instructions of PTX as the GPU computes them, next to Python's whole numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceview.kernels.ptx.addresses.integers import integer_result

WORDS = st.integers(0, 2**32 - 1)


def one(opcode: str, *inputs: int) -> int | None:
    found = integer_result(opcode, [np.array([value], np.int64) for value in inputs])
    return None if found is None else int(found[0])


def signed(value: int, bits: int = 32) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def towards_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@given(WORDS, WORDS, WORDS)
@settings(max_examples=60)
def test_words_of_32_bits(a, b, c):
    expected = {
        "add.s32": a + b,
        "sub.s32": a - b,
        "mul.lo.s32": a * b,
        "and.b32": a & b,
        "or.b32": a | b,
        "xor.b32": a ^ b,
        "min.u32": min(a, b),
        "max.s32": max(signed(a), signed(b)),
        "shl.b32": a << (b % 64),
        "shr.u32": a >> (b % 64),
        "shr.s32": signed(a) >> (b % 64),
    }
    for opcode, value in expected.items():
        second = b % 64 if opcode.startswith("sh") else b
        assert one(opcode, a, second) == value % 2**32, opcode
    assert one("mad.lo.s32", a, b, c) == (a * b + c) % 2**32
    assert one("mul.wide.s32", a, b) == signed(a) * signed(b)
    assert one("mad.wide.u32", a, 4, 2**45 + c) == 4 * a + 2**45 + c
    assert one("cvt.s64.s32", a) == signed(a)
    assert one("cvt.u64.u32", a) == a
    assert one("not.b32", a) == ~a % 2**32
    assert one("neg.s32", a) == -a % 2**32
    assert one("selp.b32", a, b, c) == (a if c % 2 else b)
    assert one("setp.lt.s32", a, b) == (signed(a) < signed(b))
    assert one("setp.lt.u32", a, b) == (a < b)
    assert one("setp.ge.and.u32", a, b, c % 2) == ((a >= b) & c % 2)


@given(WORDS, WORDS.filter(lambda value: value % 2**32 != 0))
@settings(max_examples=60)
def test_division_rounds_towards_zero(a, b):
    quotient = towards_zero(signed(a), signed(b))
    assert one("div.s32", a, b) == quotient % 2**32
    assert one("rem.s32", a, b) == (signed(a) - quotient * signed(b)) % 2**32
    assert one("div.u32", a, b) == a // b
    assert one("rem.u32", a, b) == a % b


@given(WORDS, WORDS, st.integers(0, 31), st.integers(1, 32))
@settings(max_examples=60)
def test_fields_of_bits(a, b, start, length):
    field = a >> start & (2**length - 1)
    assert one("bfe.u32", a, start, length) == field
    if start + length <= 32:
        assert one("bfe.s32", a, start, length) == signed(field, length) % 2**32
    mask = (2**length - 1) << start
    assert one("bfi.b32", a, b, start, length) == ((a << start & mask) | (b & ~mask)) % 2**32


@given(WORDS, WORDS, WORDS)
@settings(max_examples=30)
def test_tables_of_three_operands(a, b, c):
    for table in (0xC0, 0xFE, 0x96, 0xEA):
        expected = 0
        for bit in range(32):
            case = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
            expected |= (table >> case & 1) << bit
        assert one("lop3.b32", a, b, c, table) == expected


@pytest.mark.parametrize("opcode", ["add.f32", "mul.hi.s32", "prmt.b32", "cvt.rzi.s32.f32", "shfl"])
def test_what_is_no_integer_or_not_known_has_no_value(opcode):
    assert one(opcode, 1, 2, 3) is None


def test_pred_registers():
    assert [one("and.pred", 1, 0), one("not.pred", 0), one("or.pred", 1, 0)] == [0, 1, 1]

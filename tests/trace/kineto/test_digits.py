"""Microseconds to nanoseconds, against exact decimal arithmetic."""

from decimal import ROUND_HALF_UP, Decimal

from hypothesis import given
from hypothesis import strategies as st

from traceview.base.tables import NULL
from traceview.traces.trace.kineto.columns import nanoseconds

NUMBERS = st.builds(
    lambda whole, decimals: f"{whole}.{decimals}" if decimals else str(whole),
    st.one_of(st.integers(0, 4 * 10**15), st.integers(0, 10**6)),
    st.text("0123456789", max_size=6),
)


def exact(number: str) -> int:
    return int((Decimal(number) * 1000).to_integral_value(ROUND_HALF_UP))


@given(st.lists(NUMBERS))
def test_plain_numbers_are_exact(numbers: list[str]):
    assert nanoseconds([n.encode() for n in numbers]).tolist() == [exact(n) for n in numbers]


def test_a_float_would_be_wrong():
    number = "4488084880550.402"
    assert nanoseconds([number.encode()]).tolist() == [4488084880550402]
    assert round(float("1712195495519689.123") * 1000) != 1712195495519689123
    assert nanoseconds([b"1712195495519689.123"]).tolist() == [1712195495519689123]


def test_other_forms():
    numbers = [b"-1.5", b"1e3", b'"12.5"', b"1.", b".5", b"null", b"", b'"a"', b"1e400", b"{}"]
    wanted = [-1500, 1_000_000, 12_500, 1000, 500, NULL, NULL, NULL, NULL, NULL]
    # Beyond any exponent that Decimal computes with, and below each.
    numbers += [b"1e3690000", b"1e999999999999999999", b"-1e999999", b"1e-999999999"]
    wanted += [NULL, NULL, NULL, 0]
    assert nanoseconds(numbers).tolist() == wanted


def test_whitespace_within_a_value():
    assert nanoseconds([b"[1,\n2]", b"3"]).tolist() == [NULL, 3000]
    assert nanoseconds([]).tolist() == []

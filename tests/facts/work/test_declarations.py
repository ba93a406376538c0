"""What ranges declare, written and read in one place; their texts may be anybody's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.traces.facts.work.from_ranges import DeclaredWork, declaration, parse_declaration


def test_what_is_written_is_read():
    said = declaration("gelu, triton", bytes=2147483648, flop=3.5e9, kind="fp32")

    assert said == 'gelu, triton {"bytes": 2147483648, "flop": 3500000000.0, "kind": "fp32"}'
    assert parse_declaration(said) == DeclaredWork("gelu, triton", 2147483648.0, 3.5e9, "fp32")


def test_either_figure_alone_is_enough():
    assert parse_declaration('x {"bytes": 1}') == DeclaredWork("x", 1.0, None, None)
    assert parse_declaration('{"flop": 2, "more": "x"}') == DeclaredWork(
        "(unnamed)", None, 2.0, None
    )
    assert parse_declaration('x {"flop": 2, "kind": "fp99"}') == DeclaredWork("x", None, 2.0, None)


def test_the_payload_of_the_range():
    assert parse_declaration('x {"bytes": "payload"}', 12) == DeclaredWork("x", 12.0, None, None)
    assert parse_declaration('x {"bytes": "payload", "flop_per_byte": 1.5}', 12).flop == 18.0
    assert parse_declaration('x {"bytes": "payload"}', -12) is None
    assert parse_declaration('x {"bytes": "payload"}') is None
    assert parse_declaration('x {"flop": 3, "flop_per_byte": 1.5, "bytes": 4}').flop == 3.0
    assert parse_declaration('x {"bytes": 1e23, "flop_per_byte": 1e23}').flop is None


@pytest.mark.parametrize(
    "hostile",
    [
        "gelu",
        "gelu {}",
        'gelu {"bytes": -1}',
        'gelu {"bytes": NaN}',
        'gelu {"bytes": Infinity}',
        'gelu {"bytes": 1e999}',
        'gelu {"bytes": "12"}',
        'gelu {"bytes": true}',
        'gelu {"bytes": [1]}',
        'gelu {"bytes": 1',
        'gelu {"bytes": 1} and more',
        'gelu {"bytes": {"bytes": 1}}',
        'gelu {"bytes": ' + "9" * 5000 + "}",
        'gelu {"bytes": ' + "9" * 900 + "}",
        "{" * 100_000 + '"}',
        'x {"a": ' + "[" * 900 + "}",
        'gelu ["bytes", 1]',
    ],
)
def test_what_declares_nothing(hostile):
    assert parse_declaration(hostile) is None


@given(st.text(max_size=300))
def test_no_text_is_too_strange(name):
    parse_declaration(name)
    parse_declaration(name + '{"bytes": 3}')
    parse_declaration('a {"bytes": ' + json.dumps(name) + "}")

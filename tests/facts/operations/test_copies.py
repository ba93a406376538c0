"""Copies by direction and host memory, as masks over the operations."""

import numpy as np

from tests.facts.arrays import operations
from traceview.base.tables import Column, Table
from traceview.traces.facts.copies import among_operations, is_pageable, is_upload
from traceview.traces.facts.operations import Kind

NAMES = ("direction", "source_memory", "destination_memory")
COPIES = Table.from_rows(
    [Column(name, "text", "", nullable=True) for name in NAMES],
    [
        dict(zip(NAMES, row, strict=True))
        for row in [
            ("H2D", "pageable", "device"),
            ("H2D", "pinned", "device"),
            ("D2H", "device", "pageable"),
            ("D2D", None, None),
        ]
    ],
)


def test_pageable_memory_at_either_end():
    assert is_pageable(COPIES).tolist() == [True, False, True, False]
    assert is_upload(COPIES).tolist() == [True, True, False, False]


def test_rows_of_copies_as_operations():
    kinds = [Kind.COPY, Kind.KERNEL, Kind.COPY]
    ops = operations([(0, 1), (1, 2), (2, 3)], kind=kinds)

    # The rows of these copies are 0 and 2; row 1 of a kernel is no row of copies.
    assert among_operations(ops, np.array([True, True, False, True])).tolist() == [
        True,
        False,
        False,
    ]

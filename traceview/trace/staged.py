"""Staged columns: those of a table while a reader makes it."""

from __future__ import annotations

import numpy as np

from traceview.tables import Array, Texts, constant, object_array, thrifty

Staged = dict[str, Array | Texts]
INT32 = np.iinfo(np.int32)


def numbers_of(staged: Staged, name: str) -> Array:
    """A column that is not text."""
    values = staged[name]
    assert not isinstance(values, Texts)
    return values


def texts_of(staged: Staged, name: str) -> Texts:
    """A column of texts."""
    values = staged[name]
    assert isinstance(values, Texts)
    return values


def absent_texts(rows: int) -> Texts:
    """A column without a text in any row."""
    return Texts(constant(-1, rows, np.int32), object_array([]))


def same_text(text: str, rows: int) -> Texts:
    """A column with the same text in every row."""
    return Texts(constant(0, rows, np.int32), object_array([text]))


def thrifty_columns(staged: Staged) -> Staged:
    """Store constant columns, about half of all columns in most traces, as a single value."""
    return {
        name: values.thrifty() if isinstance(values, Texts) else thrifty(values)
        for name, values in staged.items()
    }

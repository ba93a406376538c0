"""Ranges that `traceview record` adds to a program, recognized by a prefix of their names.

torch opens ranges in the default domain only, so the prefix stands for a domain of our own.
"""

from __future__ import annotations

from itertools import repeat

import numpy as np

from traceview.tables import Mask, Texts, object_array
from traceview.tables.packed_texts import packed
from traceview.trace.nsys.rows import Staged

DOMAIN = "traceview"
PREFIX = "traceview:range:"


def starting(texts: Texts, *prefixes: str) -> Mask:
    """Whether each distinct text starts with one of `prefixes`, by code; False for code −1."""
    every = packed(texts)
    if not any(every.holds(prefix.encode()) for prefix in prefixes):
        return np.zeros(len(every) + 1, bool)
    values = texts.values.tolist()
    hit = map(str.startswith, values, repeat(prefixes))
    return np.append(np.fromiter(hit, bool, len(values)), False)


def is_added(name: Texts, domain: Texts) -> Mask:
    """True for the ranges that `traceview record` added."""
    prefixed = starting(name, PREFIX)
    if not prefixed.any():
        return np.zeros(len(name), bool)
    ours: Mask = prefixed[name.codes] & ((domain.codes < 0) | domain.isin([DOMAIN]))
    return ours


def in_own_domain(ranges: Staged) -> Staged:
    """The ranges; added ones get the domain DOMAIN, and names without the prefix."""
    name, domain = ranges["name"], ranges["domain"]
    assert isinstance(name, Texts)
    assert isinstance(domain, Texts)
    added = is_added(name, domain)
    if not added.any():
        return ranges
    used = np.zeros(len(name.values) + 1, bool)
    used[name.codes[added]] = True
    short = [
        str(text).removeprefix(PREFIX) if is_used else str(text)
        for text, is_used in zip(name.values, used, strict=False)
    ]
    # Short names are appended, because the program may use the prefixed name as well.
    codes = np.where(added, name.codes + len(name.values), name.codes)
    names = Texts(codes.astype(np.int32), object_array([*name.values, *short]))
    domains = np.where(added, len(domain.values), domain.codes).astype(np.int32)
    return {
        **ranges,
        "name": names.map([str(text) for text in names.values]),
        "domain": Texts(domains, object_array([*domain.values, DOMAIN])),
    }

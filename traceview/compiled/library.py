"""The compiled library of C functions, whose sources lie beside the modules that call them.

Wheels contain it; an installation from source builds it if there is a C compiler. It is called
through ctypes, which releases the GIL. Every caller has a fallback in Python.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_char_p, c_int, c_int64
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np

# Environment variable: any value disables the library, e.g. to rule out a bug in the C code.
SWITCH = "TRACEVIEW_NO_C"
# The version in pages.c: an editable install may have a library built from older source.
INTERFACE = 4
# Result type by function; the library of an editable install may lack some functions.
_RESULTS: dict[str, Any] = {
    "traceview_count_rows": c_char_p,
    "traceview_decode": c_char_p,
    "traceview_index_texts": c_char_p,
    "traceview_number_texts": c_char_p,
    "traceview_zero_numbers": None,
    "traceview_read_numbers": None,
    "traceview_holds": c_int,
    "traceview_pick_texts": None,
    "traceview_number_values": c_char_p,
    "traceview_union": c_char_p,
    "traceview_union_on_lanes": c_char_p,
    "traceview_places": None,
    "traceview_most_open": None,
    "traceview_covered_before": None,
    "traceview_outermost": c_char_p,
    "traceview_overlapping": None,
    "traceview_gather": c_char_p,
    "traceview_group": None,
    "traceview_follows": None,
    "traceview_mark_values": None,
    "traceview_mark_varied": None,
    "traceview_order": None,
    "traceview_group_statistics": None,
    "traceview_different_in_groups": None,
    "traceview_add_by_number": None,
    "traceview_match_keys": c_int,
    "traceview_sort": None,
    "traceview_most_first": c_int,
    "traceview_running": None,
    "traceview_nest": None,
    "traceview_in_nesting_order": None,
    "traceview_innermost": None,
    "traceview_split_gaps": None,
    "traceview_nearest": None,
    "traceview_number_paths": None,
    "traceview_add_to_parents": None,
    "traceview_own_time": None,
    "traceview_sum_nested": None,
    "traceview_mark_around": None,
    "traceview_scan_events": None,
    "traceview_spread": None,
    "traceview_pack": None,
    "traceview_rows_inside": None,
    "traceview_intersection": None,
    "traceview_sum_sites": None,
}


def has(*names: str) -> bool:
    """Whether the library is installed, not switched off, and has these functions."""
    return not os.environ.get(SWITCH) and set(names) <= _functions().keys()


def call(name: str, *given: Any) -> str | None:
    """Call a function of the library; return None, or the reason why it failed."""
    reason = _functions()[name](*given)
    return reason.decode() if reason is not None else None


def address(array: np.ndarray[Any, Any]) -> int:
    """The address of the data of a C-contiguous array."""
    assert array.flags.c_contiguous
    return array.ctypes.data


def pointer(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    """The address of the data of a C-contiguous array, as an argument of `call`."""
    return ctypes.c_void_p(address(array))


def answer(name: str, *given: Any) -> int:
    """Call a function that returns a number."""
    result: int = _functions()[name](*given)
    return result


@cache
def _functions() -> dict[str, Any]:
    """The functions of the library by name; empty without a library of this INTERFACE."""
    folder = Path(__file__).parent.parent / "trace" / "sqlite"
    # pages.so; an editable install may have one that an older setup named after its Python.
    files = (folder / f"pages{suffix}" for suffix in reversed(EXTENSION_SUFFIXES))
    try:
        library = ctypes.CDLL(str(next(file for file in files if file.exists())))
        if c_int64.in_dll(library, "traceview_interface").value != INTERFACE:
            return {}
    except (StopIteration, OSError, ValueError):
        return {}
    functions = {name: getattr(library, name, None) for name in _RESULTS}
    for name, function in functions.items():
        if function is not None:
            function.restype = _RESULTS[name]
    return {name: function for name, function in functions.items() if function is not None}

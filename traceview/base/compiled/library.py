"""The door to the C library: its functions by name, with the types of their arguments.

The sources lie here and beside the modules that call them. A wheel holds it, and an installation
from source builds it. It is called through ctypes, which releases the GIL, and knows nothing of
Python, so that one library serves every version.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from traceview.base.errors import LibraryError

PATH = Path(__file__).parents[2] / "traces" / "trace" / "sqlite" / "pages.so"
INTERFACE = 7
"""The version in pages.c: an editable installation may have a library built from older source."""
_REMEDY = (
    "install the wheel for this platform (pip install --force-reinstall traceview), or in a clone "
    "build it with a C compiler: pip install -e ."
)
_FUNCTIONS = {
    "traceview_count_rows": "text & &",
    "traceview_decode": "text & & n n",
    "traceview_index_texts": "text &",
    "traceview_number_texts": "text & u1 i8 i8 n =i4",
    "traceview_zero_numbers": "none =u1 n",
    "traceview_mark_numbers": "none u1 n =u1 &",
    "traceview_read_numbers": "none u1 i8 i8 n i8 i8 =i8",
    "traceview_holds": "int u1 n bytes n",
    "traceview_pick_texts": "none u1 i8 i8 i8 n =u1",
    "traceview_number_values": "text & any n n =i4",
    "traceview_union": "text i8 i8 n n &",
    "traceview_union_on_lanes": "text i4 i8 i8 n n =i8 =i8 &",
    "traceview_places": "none i8 n i8 n n =i8",
    "traceview_rows_inside": "none i8 i8 n i8 n =i8 &",
    "traceview_intersection": "none i8 i8 n i8 i8 n &",
    "traceview_most_open": "none i8 i8 n n &",
    "traceview_covered_before": "none i8 i8 i8 n i8 n =i8",
    "traceview_outermost": "text i8 i8 i4 n =i4 =i8 =i8 &",
    "traceview_overlapping": "none i8 i8 n =i8 & &",
    "traceview_running": "none i8 n i8 n =i8 =i8 &",
    "traceview_gather": "text any n n any n n =any",
    "traceview_group": "none i4 n n =i4 =i8 =i8 &",
    "traceview_follows": "none i4 i4 n n =i4 &",
    "traceview_mark_values": "none any n n n =u1",
    "traceview_mark_varied": "none i4 i4 n =i4 =u1",
    "traceview_order": "none any n n n n =i8 =i8",
    "traceview_group_statistics": "none i8 i8 n n &",
    "traceview_different_in_groups": "none i8 u1 n n =i8 =i8",
    "traceview_add_by_number": "none any n i8 n =i8",
    "traceview_match_keys": "int i8 n i8 n =i4 n =i4",
    "traceview_sort": "none =i8 =i8 n n",
    "traceview_most_first": "int i8 n =i8 =i8",
    "traceview_nest": "none i8 i8 i8 n =i4 =u1",
    "traceview_in_nesting_order": "none i4 i8 i8 n &",
    "traceview_innermost": "none i8 i8 i4 i8 n =i8 i4 i8 n =i4",
    "traceview_nearest": "none i4 i4 i4 n =i4",
    "traceview_inherited": "none i4 i4 n =i4",
    "traceview_depths": "none i4 n =i4",
    "traceview_mark_around": "none i4 i4 n =u1",
    "traceview_own_time": "none i8 i8 i4 n =i8",
    "traceview_sum_nested": "none i8 i8 i4 i4 n =i8 =i8 =i8",
    "traceview_number_paths": "none i4 i4 n =i4 &",
    "traceview_add_to_parents": "none i4 n =i8",
    "traceview_bind": "none & n i8 i8 i8 =i8 =i4 =i8 =u1",
    "traceview_replay": "none & =i8 =i8",
    "traceview_walk": "none & i8 i8 i4 n &",
    "traceview_scan_events": "none &",
    "traceview_spread": "none i8 n n &",
    "traceview_pack": "none i8 n n u n =any =i4 =i8",
}
"""The result and the arguments of each function, in the order of its declaration in C.

i8, i4 and u1 are arrays of integers of so many bytes, copied where they are of another type or not
contiguous; `any` is one of any type. Behind = stand those that are written, which must fit as they
are. n and u are numbers, & is a number or structure that is passed by its address. A result `text`
is why a function failed, or None.
"""


def call(name: str, *given: Any) -> Any:
    """Call a function of the library; a text that it returns says why it failed.

    Raises LibraryError.
    """
    result = _functions()[name](*given)
    return result.decode() if isinstance(result, bytes) else result


def address(array: np.ndarray[Any, Any]) -> int:
    """The address of the data of a C-contiguous array, for a field of a structure."""
    assert array.flags.c_contiguous
    return array.ctypes.data


def check() -> None:
    """Raise LibraryError if the library cannot be called."""
    _functions()


class _Pointer(c_void_p):
    """The address of an array, which lives as long."""

    array: np.ndarray[Any, Any]


class _Column:
    """An array as an argument."""

    def __init__(self, kind: str) -> None:
        self._written = kind.startswith("=")
        size = {"i8": 8, "i4": 4, "u1": 1}.get(kind.removeprefix("="))
        signs = "uib" if size == 1 else "iu"
        types = [] if size is None else [np.dtype(f"{sign}{size}") for sign in signs]
        self._types = frozenset(types)
        self._type = types[0] if types else None

    def from_param(self, array: np.ndarray[Any, Any]) -> _Pointer:
        fits = self._type is None or array.dtype in self._types
        if not fits or not array.flags.c_contiguous:
            if self._written:
                raise TypeError(f"C cannot write to an array of {array.dtype}")
            array = np.ascontiguousarray(array, self._type)
        pointer = _Pointer(array.ctypes.data)
        pointer.array = array
        return pointer


class _Reference:
    """A number or structure that is passed by its address."""

    @staticmethod
    def from_param(value: Any) -> Any:
        return ctypes.byref(value)


_ARGUMENTS = {
    **{kind: _Column(kind) for each in ("i8", "i4", "u1", "any") for kind in (each, f"={each}")},
    "n": c_int64,
    "u": c_uint64,
    "&": _Reference,
    "bytes": c_char_p,
}
_RESULTS = {"none": None, "int": c_int, "text": c_char_p}


@cache
def _functions() -> dict[str, Any]:
    """The functions of the library by name. Raises LibraryError."""
    if not PATH.exists():
        raise LibraryError(f"traceview's C library is missing: there is no {PATH}", _REMEDY)
    try:
        library = ctypes.CDLL(str(PATH))
        built = c_int64.in_dll(library, "traceview_interface").value
        functions = {name: getattr(library, name) for name in _FUNCTIONS}
    except (OSError, ValueError, AttributeError) as error:
        what = f"traceview's C library {PATH} cannot be used ({' '.join(str(error).split())})"
        raise LibraryError(what, _REMEDY) from None
    if built != INTERFACE:
        what = f"traceview's C library {PATH} was built from other source than this version"
        raise LibraryError(what, _REMEDY)
    for name, function in functions.items():
        result, *arguments = _FUNCTIONS[name].split()
        function.restype = _RESULTS[result]
        function.argtypes = [_ARGUMENTS[each] for each in arguments]
    return functions

"""TRACEVIEW_KERNELS: the kernel code that `traceview record` stored in the trace.

Code stays compressed until it is needed. A trace is untrusted input: the decompressed size is
bounded, and a field of the wrong type counts as absent.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from traceview.tables import Array, Column, Texts, null_of, object_array
from traceview.trace.nsys.rows import INT32, Staged
from traceview.trace.schema.program import KERNEL_CODE
from traceview.trace.sqlite.file import Database

KERNELS_TABLE = "TRACEVIEW_KERNELS"
BLOBS = ("ptx", "cubin")
# Far beyond any real kernel.
MOST_BYTES = 64 << 20
_INT64 = np.iinfo(np.int64)


def staged(database: Database) -> Staged | None:
    """The columns of the kernel_code table; None if the trace has no kernel code.

    Raises sqlite3.Error if the table is damaged.
    """
    if KERNELS_TABLE not in database.tables:
        return None
    columns = KERNEL_CODE.columns
    lines = database.lines(KERNELS_TABLE, [column.name for column in columns])
    named = [line for line in lines if isinstance(line[0], str)]
    cells = zip(*named, strict=True) if named else ((),) * len(columns)
    return {
        column.name: _READ[column.dtype](column, list(values))
        for column, values in zip(columns, cells, strict=True)
    }


def packed(code: bytes) -> bytes:
    """Compress code for the table."""
    return zlib.compress(code, 9)


def unpacked(blob: object) -> bytes | None:
    """Decompress a blob; None if it is absent, damaged, or larger than MOST_BYTES."""
    if not isinstance(blob, bytes):
        return None
    unpacker = zlib.decompressobj()
    try:
        code = unpacker.decompress(blob, MOST_BYTES + 1)
    except zlib.error:
        return None
    return code if unpacker.eof and len(code) <= MOST_BYTES else None


def _texts(column: Column, cells: Sequence[object]) -> Texts:
    absent = None if column.nullable else ""
    return Texts.of([cell if isinstance(cell, str) else absent for cell in cells])


def _integers(column: Column, cells: Sequence[object]) -> Array:
    dtype = np.dtype(column.dtype)
    most = INT32.max if dtype.itemsize == 4 else _INT64.max
    null = null_of(dtype)
    sound = [c if isinstance(c, int) and 0 <= c <= most else null for c in cells]
    return np.array(sound, dtype)


def _blobs(_: Column, cells: Sequence[object]) -> Array:
    return object_array([cell if isinstance(cell, bytes) else None for cell in cells])


_READ: dict[str, Callable[[Column, Sequence[object]], Array | Texts]] = {
    "text": _texts,
    "int32": _integers,
    "int64": _integers,
    "bytes": _blobs,
}

"""The cost of a warp's memory request: sectors of global memory, wavefronts of shared memory.

Both follow from the addresses of the 32 threads. Global memory is moved in sectors of 32 bytes.
Shared memory has 32 banks of 4 bytes; a request takes a wavefront per distinct word of its busiest
bank. Requests of 8 bytes per thread run in two halves and of 16 bytes in four quarters (CUDA C++
Programming Guide, shared memory), each with conflicts of its own; where threads 2i and 2i + 1 read
the same bytes throughout the warp, two of these parts run as one (measured on an H200 with Nsight
Compute: 183 index patterns, tests/data/shared_wavefronts.json).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceview.vocabulary.amounts import WARP_THREADS

Addresses = npt.NDArray[np.int64]
"""Byte addresses, shape (warps, 32)."""
Active = npt.NDArray[np.bool_]
"""Which threads take part, shape (warps, 32)."""
Counts = npt.NDArray[np.int64]
"""One number per request, shape (warps,)."""

SECTOR_BYTES = 32
_BANKS = 32
_BANK_BYTES = 4
_ROW_BYTES = 16
_ROWS = 8


def distinct(values: Addresses, active: Active) -> Counts:
    """The number of distinct values per row among the active ones, shape (rows,)."""
    counts: Counts = _first_of_each(values, active)[1].sum(axis=1, dtype=np.int64)
    return counts


def sectors(address: Addresses, active: Active, width: int) -> Counts:
    """The sectors that each request touches; accesses of `width` bytes, at most 32, are aligned."""
    last = (address + width - 1) // SECTOR_BYTES
    both = np.concatenate([address // SECTOR_BYTES, last], axis=1)
    return distinct(both, np.concatenate([active, active], axis=1))


def needed_bytes(address: Addresses, active: Active, width: int) -> Counts:
    """The distinct bytes that each request reads or writes."""
    return distinct(address // width, active) * width


def wavefronts(address: Addresses, active: Active, width: int) -> Counts:
    """The wavefronts of each shared-memory request of `width` bytes per thread."""
    words = max(1, width // _BANK_BYTES)
    counts = _in_phases(address, active, words, WARP_THREADS // words)
    if words == 1:
        return counts
    joined = _in_phases(address, active, words, 2 * WARP_THREADS // words)
    return np.where(_alike_in_pairs(address, active), joined, counts)


def fewest_wavefronts(address: Addresses, active: Active, width: int) -> Counts:
    """The wavefronts of each request without bank conflicts."""
    words = max(1, width // _BANK_BYTES)
    counts = _phases(active, WARP_THREADS // words)
    if words == 1:
        return counts
    return np.where(
        _alike_in_pairs(address, active), _phases(active, 2 * WARP_THREADS // words), counts
    )


def _phases(active: Active, threads: int) -> Counts:
    """The number of phases of `threads` threads in which any thread takes part, per request."""
    phases = active.reshape(len(active), -1, threads)
    counts: Counts = phases.any(axis=2).sum(axis=1, dtype=np.int64)
    return counts


def _alike_in_pairs(address: Addresses, active: Active) -> npt.NDArray[np.bool_]:
    """True where threads 2i and 2i + 1 read the same in the whole warp, or neither takes part."""
    same = (address[:, ::2] == address[:, 1::2]) & active[:, ::2] & active[:, 1::2]
    idle = ~active[:, ::2] & ~active[:, 1::2]
    alike: npt.NDArray[np.bool_] = (same | idle).all(axis=1)
    return alike


def matrix_wavefronts(address: Addresses, matrices: int) -> Counts:
    """The wavefronts of ldmatrix or stmatrix: 8 threads give the 16-byte rows of a matrix."""
    rows = address[:, : matrices * _ROWS]
    active = np.ones(rows.shape, bool)
    return _in_phases(rows, active, _ROW_BYTES // _BANK_BYTES, _ROWS)


def _in_phases(address: Addresses, active: Active, words: int, threads: int) -> Counts:
    """The wavefronts summed over phases of `threads` threads that move `words` words each."""
    rows = len(address)
    word = address.reshape(rows, -1, threads, 1) // _BANK_BYTES + np.arange(words)
    taking = np.broadcast_to(active.reshape(rows, -1, threads, 1), word.shape)
    phases = word.shape[1]
    shape = (rows * phases, -1)
    busiest = _busiest_bank(word.reshape(shape), taking.reshape(shape))
    counts: Counts = busiest.reshape(rows, phases).sum(axis=1, dtype=np.int64)
    return counts


def _busiest_bank(word: Addresses, active: Active) -> Counts:
    """The most distinct words in one bank, per row."""
    ordered, is_first = _first_of_each(word, active)
    row = np.broadcast_to(np.arange(len(word))[:, None], word.shape)
    cells = (row * _BANKS + ordered % _BANKS)[is_first]
    counts = np.bincount(cells, minlength=len(word) * _BANKS).reshape(-1, _BANKS)
    return np.asarray(counts.max(axis=1), np.int64)


def _first_of_each(values: Addresses, active: Active) -> tuple[Addresses, Active]:
    """The values of each row, sorted, and a mask of the first in each run of equal active ones."""
    end = np.iinfo(np.int64).max
    ordered = np.sort(np.where(active, values, end), axis=1)
    is_new = np.diff(ordered, axis=1, prepend=ordered[:, :1] - 1) != 0
    return ordered, is_new & (ordered != end)

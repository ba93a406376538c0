"""Static __shared__ arrays of CUDA C++: their bank conflicts, and the padding that removes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.ptx.addresses import request_costs
from traceview.kernels.ptx.model import Access, RequestCost

_SYMBOL = re.compile(r"\.shared (?:\.align \d+ )?\.b8 ([\w$]+)\[(\d+)\]")
_LOCAL = re.compile(r"(?<=E)(\d+)(\w+)$")
_DECLARED = re.compile(r"__shared__\s+(?P<type>[^;\[\]=]*?)\s*\b\w+\s*\[[^;=]*;")
_SIZES = (1, 2, 4, 8, 16)
# Of static arrays (CUDA C++ Programming Guide, compute capabilities).
_MOST_BYTES = 48 << 10


@record
class ArrayConflict:
    """The worst request of an access: its array, cost, and bytes between neighbouring threads.

    `padded` is a declaration of the array with which the request has no conflicts, if any.
    """

    name: str
    stride_bytes: int
    cost: RequestCost
    padded: str = ""


def array_conflict(kernel: KernelContext, access: Access) -> ArrayConflict | None:
    """The conflict of an access whose addresses are evenly spaced in a static array, if so."""
    costs, provenance = kernel.request_costs, kernel.provenance
    if not (costs and provenance and access.width_bits and kernel.compiled.is_cuda(access.source)):
        return None
    sizes = {name: int(size) for name, size in _SYMBOL.findall(kernel.compiled.ptx or "")}
    each = [(costs.cost_of(access, [i]), i) for i in provenance.instructions(access)]
    cost, worst = max(each, key=lambda pair: (pair[0] and pair[0].wavefronts) or 0)
    symbols = provenance.slices.symbols(worst) & sizes.keys()
    stride = costs.stride(worst)
    if cost is None or len(symbols) != 1 or not stride or stride % 4:
        return None
    symbol = symbols.pop()
    local = _LOCAL.search(symbol)
    name = local[2] if local and int(local[1]) == len(local[2]) else symbol
    bytes_ = access.width_bits // 8
    text, room = _text(access), _MOST_BYTES - sum(sizes.values())
    padded = next(_padded(text, name, sizes[symbol], abs(stride), bytes_, room), "")
    return ArrayConflict(name, abs(stride), cost, padded)


def _text(access: Access) -> str:
    try:
        return Path(access.source.file if access.source else "").read_text("utf-8", "replace")
    except OSError:
        return ""


def _padded(text: str, name: str, size: int, stride: int, width: int, room: int) -> Iterator[str]:
    """The declarations of an array of `size` bytes with its rows padded, if that helps.

    `width` is of an access, `room` the bytes that are left.
    """
    for declared in _DECLARED.finditer(text):
        array = re.search(rf"\b{name}\s*((?:\[\w+\])+)", declared[0])
        sides = re.findall(r"\w+", array[1]) if array else []
        known = [_value(side, text) for side in sides]
        elements = math.prod(known)
        if len(sides) < 2 or not elements or size % elements or size // elements not in _SIZES:
            continue
        element = size // elements
        # What a thread moves at once stays aligned.
        more, row = max(1, width // element), known[-1] * element
        if stride % row or size // row * more * element > room:
            continue
        address = np.arange(WARP_THREADS)[None] * (stride + stride // row * more * element)
        active = np.ones(address.shape, bool)
        least = request_costs.fewest_wavefronts(address, active, width)
        if (request_costs.wavefronts(address, active, width) == least).all():
            last = str(known[-1] + more) if sides[-1].isdigit() else f"{sides[-1]} + {more}"
            brackets = "".join(f"[{side}]" for side in (*sides[:-1], last))
            yield f"__shared__ {declared['type']} {name}{brackets}"


def _value(side: str, text: str) -> int:
    """A side as a number: itself, or a constant that the file defines once; else 0."""
    if side.isdigit():
        return int(side)
    values = set(re.findall(rf"(?:#\s*define\s+{side}\s+|\b{side}\s*=\s*)(\d+)\b", text))
    return int(values.pop()) if len(values) == 1 else 0

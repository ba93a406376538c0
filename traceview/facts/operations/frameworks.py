"""The framework whose library launched the kernels: remedies are written in its terms."""

from __future__ import annotations

import re
from typing import Literal

from traceview import groups
from traceview.trace import Trace, fact

Framework = Literal["torch", "jax", "cupy", "numba", ""]
_KERNELS: tuple[tuple[Framework, re.Pattern[str]], ...] = (
    ("torch", re.compile(r"\bat::native::|\btriton_(?:poi|per|red|tem)_fused")),
    ("cupy", re.compile(r"^cupy_")),
    ("jax", re.compile(r"^(?:wrapped|loop|input)_\w*(?:fusion|\w)$|^xla_|\bxla::")),
    # Numba's mangling; another compiler's tags are words, such as [abi:cxx11].
    ("numba", re.compile(r"\[abi:v\d+,\w")),
)
_RANGES: tuple[tuple[Framework, re.Pattern[str]], ...] = (
    ("torch", re.compile(r"aten::|torch\.|Optimizer\.step#")),
    ("jax", re.compile(r"Xla(?:Module|Pass|Compile)|TSL:")),
)
_LONGEST = 400


@fact
def framework(trace: Trace) -> Framework:
    """The framework of the recording; empty if no name shows one, as in a C++ program."""
    for table, rules in (("kernels", _KERNELS), ("ranges", _RANGES)):
        names = trace.recorded(table).texts("name")
        codes = groups.different(names.codes[names.codes >= 0])
        texts = [str(names.values[code])[:_LONGEST] for code in codes.tolist()]
        for found, rule in rules:
            if any(rule.search(text) for text in texts):
                return found
    return ""

"""Names that compilers give kernels, without the lines, counters and hashes that edits change."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

_FORMS = tuple(
    (re.compile(pattern), put)
    for pattern, put in (
        # nvc: nvkernel_solve_F1L204_2, main_42_gpu
        (r"_F\d+L\d+(_\d+)?$", "_#"),
        (r"_\d+(_gpu(__\w+)?)$", r"_#\1"),
        # clang: __omp_offloading_31_18a8104__Z5triadllll_l41
        (r"^(__omp_offloading)_[0-9a-f]+_[0-9a-f]+(_.*?)(_l\d+)?$", r"\1_#\2_#"),
        # nvcc: _ZN50_GLOBAL__N__2530b397_17_RangeFactories_cu_4cc9e74429elementwise_kernel…
        (r"(_GLOBAL__N__)[0-9a-f]+", r"\1#"),
        (r"(#_\w+?_cu_)[0-9a-f]{8}", r"\1#"),
        # Inductor and XLA: Inductor pointwise to_copy_t_3, loop_add_fusion_3, wrapped_add_1
        (r"^(Inductor .*)_\d+$", r"\1_#"),
        (r"^(\w*fusion|wrapped_\w+?)(_\d+)+$", r"\1_#"),
        # Warp: advance_5f0b8c1d_cuda_kernel_forward; Julia: julia_axpy_1342
        (r"_[0-9a-f]{8}(_cuda_kernel_(forward|backward))$", r"_#\1"),
        (r"^(julia_\w+?)_\d+$", r"\1_#"),
    )
)
_NUMBER = re.compile(r"\d+")


def without_counters(name: str) -> str:
    """The name with `#` for each line number, counter or hash that its compiler put in."""
    for form, put in _FORMS:
        name = form.sub(put, name)
    return name


def places_in_order(names: Iterable[str]) -> Mapping[str, tuple[str, int, int]]:
    """For each name with a counter: the name without it, its rank among equal ones, their number.

    An edit changes lines and counters but keeps their order.
    """
    alike: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        if (rest := without_counters(name)) != name:
            alike[rest].add(name)
    return {
        name: (rest, place, len(own))
        for rest, own in alike.items()
        for place, name in enumerate(sorted(own, key=_numbers))
    }


def _numbers(name: str) -> tuple[list[int], str]:
    return [int(number) for number in _NUMBER.findall(name)], name

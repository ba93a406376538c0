"""Kinds of steps that take turns in one loop: prefills between decodes, steps with an evaluation.

Serving engines name the requests of a step: vLLM `execute_7_context_1(512)_generation_3(3)`, SGLang
`step[EXTEND bs=4 toks=512]`. Else the work tells: most steps launch about as much, and now and then
one launches much more.
"""

from __future__ import annotations

import re

import numpy as np

from traceview.base import groups
from traceview.base.tables import Array, Integers, Mask, Texts, arrays
from traceview.base.tables.arrays import NULL

PREFILL, DECODE, MIXED, LONGER = 1, 2, 3, 4
_WORDS = {PREFILL: "prefill", DECODE: "decode", MIXED: "prefill and decode"}

_TOKENS = r"(?:\((?:sq)?(\d+))?"
_REQUESTS = re.compile(
    rf"execute_(?:\d+_)?context_(\d+){_TOKENS}.*_generation_(\d+){_TOKENS}", re.ASCII
)
_MODE = re.compile(r"step\[(\w+)(?: bs=(\d+))?(?: toks=(\d+))?", re.ASCII)
_MODES = {
    **dict.fromkeys(("EXTEND", "SPLIT_PREFILL", "PREFILL"), PREFILL),
    **dict.fromkeys(("DECODE", "TARGET_VERIFY"), DECODE),
    "MIXED": MIXED,
}
_LEAST_STEPS, _LEAST_OF_KIND = 8, 3
_MUCH_MORE, _LEAST_MORE, _ALIKE, _MOST = 1.25, 4, 1.1, 0.6
"""A step of another kind launches so many times as much as the usual ones, and not only a memset or
a value to log, while these differ by less than a tenth and are most of the steps."""


def kinds_by_name(names: Texts) -> Array:
    """The kind of each step by the requests in its name; 0 where it names none."""
    used = names.used()
    kinds = [_kind_of(str(name)) for name in used.values]
    return np.array([*kinds, 0], np.int64)[used.codes]


def _kind_of(name: str) -> int:
    if mode := _MODE.match(name):
        return _MODES.get(mode[1].upper(), 0)
    match = _REQUESTS.match(name)
    if match is None:
        return 0
    prefills, decodes = (int(digits[:9]) > 0 for digits in match.group(1, 3))
    kinds = {(True, False): PREFILL, (False, True): DECODE, (True, True): MIXED}
    return kinds.get((prefills, decodes), 0)


def requests_by_name(names: Texts) -> tuple[Integers, Integers]:
    """How many requests each step serves and how many tokens it computes, by its name.

    NULL where the name does not tell.
    """
    used = names.used()
    told = [*(_requests_of(str(name)) for name in used.values), (NULL, NULL)]
    requests, tokens = np.array(told, np.int64)[used.codes].T
    return requests, tokens


def _requests_of(name: str) -> tuple[int, int]:
    match, mode = _REQUESTS.match(name), _MODE.match(name)
    if match:
        # A part without requests may be without tokens.
        counts = [int((digits or "0")[:9]) for digits in match.groups()]
        known = all(tokens or not requests for requests, tokens in (counts[:2], counts[2:]))
        return counts[0] + counts[2], counts[1] + counts[3] if known else NULL
    requests, tokens = mode.group(2, 3) if mode else (None, None)
    return int(requests[:9]) if requests else NULL, int(tokens[:9]) if tokens else NULL


def named(series: str, kind: int) -> str:
    """The name of a series, all of whose steps are of one kind; 0 is the only or usual one."""
    return _WORDS.get(kind) or (f"{series} (more work)" if kind == LONGER else series)


def kinds_by_work(series: Integers, operations: Integers, work_ns: Integers) -> Array:
    """The kind of each step by the operations that it launches and their time (ns).

    All have shape (steps,); `series` ascends.
    """
    result = np.zeros(len(series), np.int64)
    edges = np.flatnonzero(np.diff(series, prepend=-1, append=-1))
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        longer = _longer(operations[first:last], work_ns[first:last])
        if longer is not None:
            result[first:last][longer] = LONGER
    return result


def _longer(operations: Integers, work_ns: Integers) -> Mask | None:
    """True for the steps with much more work than the others; None where all are of one kind.

    The same number of launches can be a few kernels and ten times their work, where an evaluation
    is a CUDA graph or one large batch. Work that only takes longer is of no other kind.
    """
    if len(operations) < _LEAST_STEPS or operations.min() <= 0:
        return None
    least = arrays.median(operations) + _LEAST_MORE
    for amount in (operations, work_ns):
        longer = (amount >= _MUCH_MORE * arrays.median(amount)) & (operations >= least)
        few = np.sort(amount[~longer])
        alike = few[int(0.9 * (len(few) - 1))] <= _ALIKE * few[int(0.1 * (len(few) - 1))]
        if alike and np.mean(longer) <= 1 - _MOST and _comes_again(np.flatnonzero(longer), longer):
            return longer
    return None


def _comes_again(places: Integers, longer: Mask) -> bool:
    """Whether the steps at these places are several behind the first, or every n-th of all.

    The first steps launch more while they warm up.
    """
    if np.count_nonzero(places >= len(longer) // 4) >= _LEAST_OF_KIND:
        return True
    apart = np.diff(places)
    # The first step and the last are no rhythm.
    if not len(apart) or np.ptp(apart) or not 2 <= apart[0] <= len(longer) // 2:
        return False
    # What only the last step does may count as work after the loop.
    return bool(places[0] <= apart[0] and places[-1] + apart[0] >= len(longer) - 1)


def takes_turns(series: Integers, thread: Array, start_ns: Integers) -> Mask:
    """True for the steps that come behind one of another series, in a loop of several kinds.

    In such a loop most steps of some series follow each other directly. Where none do, as of ranges
    around the forward and the backward pass, each series is a part of every step.
    """
    order = np.lexsort((start_ns, thread))
    behind = np.append(False, thread[order][1:] == thread[order][:-1])
    same = np.append(False, series[order][1:] == series[order][:-1]) & behind
    count, direct = np.bincount(series), np.bincount(series[order], same)
    repeats = 2 * direct >= count
    result = np.zeros(len(series), bool)
    in_loop = groups.isin(thread, thread[repeats[series] & (count[series] > 2)])
    result[order] = behind & ~same & in_loop[order]
    return result

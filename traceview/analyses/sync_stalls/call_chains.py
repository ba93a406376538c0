"""The call of the program that stands behind a CUDA call, told from its C++ frames."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceview.analyses.sync_stalls.frame_hints import inner_call, operator, python_call
from traceview.facts.operations.blocking_calls import waits
from traceview.tables import Array, Integers, Texts, object_array
from traceview.trace import Trace, fact


@fact
def chain_hints(trace: Trace) -> tuple[Integers, Texts]:
    """The ids of the waits' call chains, ascending, and the hint of each; absent if none is known.

    The call of Python nearest to the CUDA call decides. Where there is none, as on autograd's
    thread, it is the nearest frame that is known to wait, else the outermost operator of torch.
    """
    frames = trace.recorded("callchains")
    wanted = trace.recorded("api_calls")["callchain_id"][waits(trace).call]
    frames = frames.take(np.isin(frames["callchain_id"], wanted))
    ids, chain = np.unique(frames["callchain_id"], return_inverse=True)
    depth, symbols = frames["depth"].astype(np.int64), frames.texts("symbol")
    hints = np.full(len(ids), None, object)
    for rule, nearest in ((python_call, True), (inner_call, True), (operator, False)):
        open_ = np.array([hint is None for hint in hints], bool)
        _fill(hints, open_, chain, depth if nearest else -depth, symbols, rule)
    return ids, Texts.of(hints)


def _fill(
    hints: Array,
    open_: Array,
    chain: Array,
    distance: Integers,
    symbols: Texts,
    rule: Callable[[str], str | None],
) -> None:
    """Give each open chain what the rule says of the least distant frame of which it knows."""
    said = object_array([rule(str(symbol)) for symbol in symbols.values])
    known = np.array([hint is not None for hint in said] or [False], bool)
    rows = np.flatnonzero(open_[chain] & known[np.maximum(symbols.codes, 0)])
    rows = rows[np.lexsort((distance[rows], chain[rows]))]
    of, first = np.unique(chain[rows], return_index=True)
    hints[of] = said[symbols.codes[rows[first]]] if len(of) else None

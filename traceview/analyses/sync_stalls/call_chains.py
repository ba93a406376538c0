"""The call of the program behind a CUDA call, from its C++ frames."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceview import groups
from traceview.analyses.sync_stalls.frame_hints import inner_call, operator, python_call
from traceview.facts.operations.blocking_calls import waits
from traceview.tables import Array, Integers, Texts, object_array
from traceview.trace import Trace, fact


@fact
def chain_hints(trace: Trace) -> tuple[Integers, Texts]:
    """Ids of the call chains of waits, ascending, and the hint of each, absent if unknown.

    The Python call nearest to the CUDA call counts. Without one, as on autograd's thread, it is
    the nearest frame that is known to wait, else the outermost operator of torch.
    """
    frames = trace.recorded("callchains")
    wanted = trace.recorded("api_calls")["callchain_id"][waits(trace).call]
    frames = frames.take(groups.isin(frames["callchain_id"], wanted))
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
    depth: Integers,
    symbols: Texts,
    rule: Callable[[str], str | None],
) -> None:
    """Give each open chain the hint of its frame with the least depth for which a rule has one."""
    by_symbol = object_array([rule(str(symbol)) for symbol in symbols.values])
    known = np.array([hint is not None for hint in by_symbol] or [False], bool)
    rows = np.flatnonzero(open_[chain] & known[np.maximum(symbols.codes, 0)])
    rows = rows[np.lexsort((depth[rows], chain[rows]))]
    of, first = np.unique(chain[rows], return_index=True)
    hints[of] = by_symbol[symbols.codes[rows[first]]] if len(of) else None

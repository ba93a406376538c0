"""C and C++ call chains of CUDA calls in an nsys export."""

from __future__ import annotations

import numpy as np

from traceview.trace.nsys.names import UNNAMED, filled
from traceview.trace.nsys.rows import ExportTable, Staged
from traceview.trace.nsys.tables import Reader

CALLCHAINS = ExportTable("CUDA_CALLCHAINS", ("id", "symbol", "stackDepth"), ("module",))


def callchains(reader: Reader) -> Staged | None:
    """Call-chain frames by chain, innermost first."""
    rows = reader.export.rows(CALLCHAINS)
    if rows is None:
        return None
    chain, depth = rows.integer("id"), rows.amount("stackDepth")
    order = np.lexsort((depth, chain))
    symbol = filled(reader.names.texts(rows.numbers("symbol")), UNNAMED)
    return {
        "callchain_id": chain[order],
        "depth": depth[order],
        "symbol": symbol.take(order),
        "module": reader.names.texts(rows.numbers("module")).take(order),
    }

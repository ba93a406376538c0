"""Reports of shipped recordings, for several tests each: leave them as they are."""

from functools import lru_cache

import traceview
from tests.places import DATA
from traceview.traces.reporting import Report


@lru_cache(maxsize=64)
def report_of(name: str) -> Report:
    """The report on tests/data/NAME.sqlite.xz."""
    return traceview.analyze(traceview.load(DATA / f"{name}.sqlite.xz"))

"""How many random examples a slow property is tried with."""

import os

TIMES = int(os.environ.get("TRACEVIEW_TEST_EXAMPLES", "1"))


def examples(count: int) -> int:
    """`count` examples, or $TRACEVIEW_TEST_EXAMPLES times as many."""
    return count * TIMES

"""Where nsys failed as it read the events back that it had recorded, it says so in the export."""

from __future__ import annotations

import re
from collections.abc import Iterable

_FAILED = re.compile(
    r"error when processing events|not all .* events might have been collected", re.I
)
_REASON = re.compile(r"tag_message\*\] = (.+)")


def failure(said: Iterable[str]) -> str | None:
    """What nsys says of such a failure, in one line; None where it tells of none."""
    failed = [text for text in said if _FAILED.search(text)]
    if not failed:
        return None
    reasons = [found[1] for text in failed if (found := _REASON.search(text))]
    return (reasons or [text.strip().splitlines()[0] for text in failed])[0].strip()[:200]

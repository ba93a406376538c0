"""Errors of nsys while it imported its recorded events, as found among its diagnostics."""

from __future__ import annotations

import re
from collections.abc import Iterable

_FAILED = re.compile(r"error when processing events|not all CUDA events might have been", re.I)
INCOMPLETE = re.compile(r"not all (?P<kind>.+) events might have been collected", re.I)
"""What nsys reports of a process that ended, or outlived the recording, before it sent all."""
_REASON = re.compile(r"tag_message\*\] = (.+)")


def import_error(messages: Iterable[str]) -> str | None:
    """The first import error among diagnostic messages, in one line; None without any."""
    failed = [text for text in messages if _FAILED.search(text)]
    if not failed:
        return None
    reasons = [found[1] for text in failed if (found := _REASON.search(text))]
    return (reasons or [text.strip().splitlines()[0] for text in failed])[0].strip()[:200]

"""Compatibility of the nvtx package with nsys: newer packages record no range in older nsys."""

from __future__ import annotations

import re

from traceview.recorders.nsys import Nsys

FIRST_NEW_NVTX = (0, 2, 12)
LAST_OLD_NSYS = (2024, 2)


def incompatibility(nvtx: str | None, nsys: Nsys) -> str | None:
    """Warning if ranges of this nvtx will not be recorded; None if they will."""
    if not nvtx or nsys.version > LAST_OLD_NSYS or _numbers(nvtx) < FIRST_NEW_NVTX:
        return None
    newest = ".".join(map(str, LAST_OLD_NSYS))
    return (
        f"nvtx {nvtx} records no ranges under nsys {nsys.version_text} (nor any nsys up to "
        f"{newest}): pip install 'nvtx<0.2.12' or use a newer nsys"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])

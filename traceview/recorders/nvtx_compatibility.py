"""The nvtx package against nsys: newer packages record no range under older recorders."""

from __future__ import annotations

import re

from traceview.recorders.nsys import Nsys

FIRST_NEW_NVTX = (0, 2, 12)
LAST_OLD_NSYS = (2024, 2)


def clash(nvtx: str | None, nsys: Nsys) -> str | None:
    """What to tell a user whose ranges will not be recorded; None where all is well."""
    if not nvtx or nsys.version > LAST_OLD_NSYS or _numbers(nvtx) < FIRST_NEW_NVTX:
        return None
    newest = ".".join(map(str, LAST_OLD_NSYS))
    return (
        f"nvtx {nvtx} records no range under nsys {nsys.version_text} (nor under any up to "
        f"{newest}): pip install 'nvtx<0.2.12', or use a newer nsys"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])

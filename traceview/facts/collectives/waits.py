"""Who waited for whom in collectives that belong together.

A collective ends on all its GPUs together, as none can leave before the last has sent its part. So
the GPU with the shortest kernel arrived last, and each other one waited for it as long as its own
kernel took longer. No clocks are needed for that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.tables import Integers, Mask


class CollectiveWaits(NamedTuple):
    """Waits of the collectives of one communicator.

    `wait_ns` has shape (members, collectives), −1 where a member is not recorded or the wait is not
    known. `last` is the index of the member that arrived last, −1 where unknown; `late_ns` is the
    longest wait for that member, 0 where unknown.
    """

    wait_ns: Integers
    last: Integers
    late_ns: Integers


def waits_of(duration_ns: Integers, there: Mask, together: Mask) -> CollectiveWaits:
    """The waits in collectives, from `duration_ns` of shape (members, collectives).

    `there`, of the same shape, is True where a member's collective was recorded; `together` has one
    entry per collective, False where its ends are apart.
    """
    known = together & (there.sum(axis=0) > 1)
    duration = np.where(there, duration_ns, np.iinfo(np.int64).max)
    shortest, last = duration.min(axis=0), duration.argmin(axis=0)
    wait = np.where(there & known, duration - np.where(known, shortest, 0), -1)
    return CollectiveWaits(
        wait_ns=wait,
        last=np.where(known, last, -1),
        late_ns=np.where(known, np.maximum(wait.max(axis=0), 0), 0),
    )

"""What can limit a program, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Limit = Literal[
    "cpu-launch", "gpu-compute", "gpu-memory", "communication", "copies", "synchronization",
    "data-loading", "compilation", "dependency", "mixed", "unknown",
]  # fmt: skip

LOST: Mapping[Limit, str] = {
    "cpu-launch": "waiting for the CPU to launch work",
    "data-loading": "waiting for data",
    "synchronization": "idle after synchronizations",
    "copies": "in copies or waiting for them",
    "communication": "in exposed communication",
    "compilation": "waiting for code to load or compile",
    "dependency": "idle with work already queued",
}
"""What takes the time, behind `63 % of the time`. The GPU's own work is none of these."""

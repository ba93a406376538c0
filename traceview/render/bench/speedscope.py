"""Render a profile as a file for speedscope: https://www.speedscope.app/file-format-schema.json"""

from __future__ import annotations

import json
from typing import Any

from traceview.bench.profiling import Frame, Profile
from traceview.render.base.json_text import clean

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def render_speedscope(profile: Profile, title: str, version: str) -> str:
    """One sampled profile for CPU time, and one for GPU time if there is any.

    A sample is one place in the tree of operators; its weight is the exclusive time there.
    """
    frames: dict[str, int] = {}
    kinds = (*(("GPU",) if profile.on_gpu else ()), "CPU")
    document = {
        "$schema": _SCHEMA,
        "exporter": f"traceview {version}",
        "name": title,
        "activeProfileIndex": 0,
        "profiles": [_sampled(profile.tree, kind, frames) for kind in kinds],
        "shared": {"frames": [{"name": name} for name in frames]},
    }
    return json.dumps(clean(document), indent=1, allow_nan=False) + "\n"


def _sampled(tree: Frame, kind: str, frames: dict[str, int]) -> dict[str, Any]:
    samples, weights = [], []
    for path, frame in tree.walk():
        own = frame.gpu_ns if kind == "GPU" else frame.cpu_ns
        if own:
            samples.append([frames.setdefault(name, len(frames)) for name in path])
            weights.append(own)
    return {
        "type": "sampled",
        "name": f"{kind} time by operator",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }

"""The colours of a page: one per meaning, the same in all figures and in the timeline.

GPU work has full colours by class of kernel. Idle time has reds and pale tints by cause, and
figures hatch it, so that busy and idle differ without colour as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from traceview.vocabulary.activities import ACTIVITIES
from traceview.vocabulary.causes import CAUSES

_Shades = tuple[str, str]

CLASSES: Mapping[str, _Shades] = {
    "gemm": ("#2f6db3", "#5b9be0"),
    "attention": ("#4a4fb5", "#8b8ff0"),
    "convolution": ("#1c8299", "#45b5cc"),
    "normalization": ("#3d8f57", "#66b87f"),
    "elementwise": ("#86a135", "#aac65a"),
    "cast-copy": ("#7b9a8b", "#9dbcae"),
    "reduction": ("#22958a", "#4cc2b4"),
    "softmax": ("#7a58c2", "#a68be8"),
    "gather-scatter": ("#a8517f", "#cf7aa8"),
    "sort-scan": ("#8c6a49", "#b8977a"),
    "optimizer": ("#9748ab", "#c57fd8"),
    "random": ("#b084c6", "#d0aee0"),
    "communication": ("#d97d22", "#f0a04f"),
    "autotuner": ("#5f6875", "#a0a9b4"),
    "other": ("#8b929b", "#858d97"),
}
"""Classes of kernels, as `facts/operations/kernel_classes.py` labels them; light and dark."""

OPERATIONS: Mapping[str, _Shades] = {
    "copy": ("#c39a1c", "#e0bf4a"),
    "memset": ("#a59c74", "#b9b08a"),
    "graph": ("#4f6a8a", "#7f9cc0"),
}

PHASES: Mapping[str, _Shades] = {
    "start-up": ("#b9bfc7", "#545c66"),
    "compilation": ("#9c6f66", "#c0948b"),
    "warm-up": ("#d3c9a8", "#6d6750"),
    "training": ("#2f6db3", "#5b9be0"),
    "evaluation": ("#3d8f57", "#66b87f"),
    "generation": ("#7a58c2", "#a68be8"),
    "replay": ("#4f6a8a", "#7f9cc0"),
}

TIMELINE: Mapping[str, _Shades] = {
    "call": ("#c9ced5", "#4a525c"),
    "call-launch": ("#8fa6c4", "#5d7698"),
    "call-sync": ("#9bb8a6", "#4f7560"),
    "call-harmful": ("#c62a3b", "#f2576a"),
    "call-copy": ("#d6c27c", "#86763a"),
    "call-allocate": ("#dd85a8", "#e8a0bd"),
    "call-load": ("#9c6f66", "#c0948b"),
    "call-graph": ("#de7445", "#f0916a"),
    "range": ("#dfe5ee", "#39424e"),
    "step": ("#c5d3e6", "#405573"),
    "step-outlier": ("#e58f84", "#b0564c"),
    "compute": ("#6f8fb8", "#6d8fbb"),
    "shut-down": ("#b9bfc7", "#545c66"),
    **{f"python-{each.name}": each.colors for each in ACTIVITIES if each.colors},
}
"""Activity of threads: CUDA calls, ranges and sampled Python; steps, and other phases."""

PARTS: Mapping[str, _Shades] = {
    "gpu-work": ("#6f8fb8", "#6d8fbb"),
    "gpu": ("#6f8fb8", "#6d8fbb"),
    "other-gpu-work": ("#9fb3cc", "#4c6485"),
    "foreign-gpu-work": ("#7d8590", "#868f9a"),
    "at-start": ("#e0a9a4", "#8d5450"),
    "cpu": ("#b3874e", "#cfa36a"),
    "cpu-in-waits": ("#a12b59", "#e0628f"),
    "wide": ("#3d8f57", "#66b87f"),
    "near-peak": ("#9cb8a5", "#55705e"),
    "narrow": ("#d97d22", "#f0a04f"),
}
"""Parts of a step, sides of a pair, verdicts on load widths."""

RANKS: Mapping[str, _Shades] = {
    "rank-late": ("#c0392f", "#f4776c"),
    "rank-wait": ("#6a57b8", "#a795f0"),
}
"""Between ranks: time that others wait for a rank, and time that a rank waits for others."""

MEANINGS: Mapping[str, _Shades] = {
    **RANKS,
    **PARTS,
    **TIMELINE,
    **PHASES,
    **{each.name: each.colors for each in CAUSES},
    **OPERATIONS,
    **CLASSES,
}
_IDLE = "idle: "


def color_class(name: str) -> str | None:
    """The CSS class with the colour of a meaning, such as `c-gemm`; None for any other name.

    `idle: launch-late` has the colour of its cause.
    """
    key = _key(name)
    return f"c-{key}" if key in MEANINGS else None


def _key(name: str) -> str:
    return name.removeprefix(_IDLE).lower().replace(" ", "-")


def colors_css() -> str:
    """CSS variables of all colours, light and dark, and a class per meaning to fill marks."""
    light, dark = (
        "".join(f"--c-{name}:{shades[side]};" for name, shades in MEANINGS.items())
        for side in (0, 1)
    )
    fills = "".join(f".c-{name}{{fill:var(--c-{name})}}" for name in MEANINGS)
    in_dark = f"@media (prefers-color-scheme: dark) {{\n  :root {{{dark}}}\n}}\n"
    return f":root {{{light}}}\n{in_dark}{fills}\n"

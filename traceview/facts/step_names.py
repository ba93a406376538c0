"""What the report calls each step."""

from __future__ import annotations

from collections import Counter

from traceview.facts.ranges import range_tree
from traceview.facts.steps import steps
from traceview.trace import Trace, fact


@fact
def step_names(trace: Trace) -> list[str]:
    """A name for each step that no other has: its own, else its path, else that with a count."""
    found, tree = steps(trace), range_tree(trace)
    names = [str(name) for name in found.name]
    paths = [tree.paths[path] for path in tree.path[found.range]]
    often, seen = Counter(names), Counter[str]()
    labels = [name if often[name] == 1 else path for name, path in zip(names, paths, strict=True)]
    often = Counter(labels)
    for place, label in enumerate(labels):
        if often[label] > 1:
            seen[label] += 1
            labels[place] = f"{label} ({seen[label]})"
    return labels

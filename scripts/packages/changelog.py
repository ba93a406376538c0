"""The changelog by version: `## 0.2.0 (unreleased)` becomes `## 0.2.0 (2026-11-22)`."""

from __future__ import annotations

import datetime
import re

UNRELEASED = "unreleased"
_HEADING = re.compile(r"^## (?P<version>\S+) \((?P<date>[^)]+)\)$", re.MULTILINE)


class ChangelogError(Exception):
    """The changelog does not say what a release needs to know."""


def latest(text: str) -> tuple[str, str, str]:
    """Version, date and body of the topmost section."""
    first, *others = [*_HEADING.finditer(text), None]
    if first is None:
        raise ChangelogError("CHANGELOG.md has no heading such as: ## 0.2.0 (unreleased)")
    end = others[0].start() if others[0] else len(text)
    return first["version"], first["date"], text[first.end() : end].strip()


def released(text: str, version: str, date: datetime.date) -> str:
    """The changelog with its topmost section turned into that of a release."""
    noted, state, body = latest(text)
    if state != UNRELEASED:
        raise ChangelogError(f"the topmost section of CHANGELOG.md is {noted} ({state}) already")
    if not body:
        raise ChangelogError(f"CHANGELOG.md says nothing of {noted}")
    return _HEADING.sub(f"## {version} ({date.isoformat()})", text, count=1)

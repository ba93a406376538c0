"""What other versions of Triton change about kernels, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.records import record
from traceview.kernels.inspect.upgrade import KernelUpgrade, UpgradeChange, UpgradeReport
from traceview.render.base.json_text import JsonShape, items_of
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text import SENTENCE, drawn, grid, heading, note_block, note_blocks

_MOST_CONFIGURATIONS = 4
_MOST_REASON = 160
_STYLES = {True: "yellow", False: "green"}


@record
class UpgradeGroup:
    """Changes that kernels share: of all architectures, versions and variants with equal ones."""

    kernel: str
    changes: tuple[UpgradeChange, ...]
    members: tuple[KernelUpgrade, ...]

    @property
    def where(self) -> str:
        """The architectures and versions: `sm_100 · 3.7.1, 3.9`."""
        archs = dict.fromkeys(each.arch for each in self.members)
        versions = dict.fromkeys(each.version for each in self.members)
        return f"{', '.join(archs)} · Triton {', '.join(versions)}"

    @property
    def about(self) -> str:
        """The variants, their launches, and their time in the recording."""
        every = dict.fromkeys(kernel.configuration for kernel in self.members)
        shown = units.first([name for name in every if name], _MOST_CONFIGURATIONS, "; ")
        variants = {each.configuration: each for each in self.members}.values()
        times = [each.time_ns for each in variants if each.time_ns is not None]
        time = f"{units.duration(sum(times))} in the recording" if times else ""
        return " · ".join(filter(None, (shown, time)))


def groups_of(upgrades: Iterable[KernelUpgrade]) -> list[UpgradeGroup]:
    """The kernels by equal changes, in order."""
    found: dict[tuple[str, tuple[UpgradeChange, ...]], list[KernelUpgrade]] = {}
    for each in upgrades:
        found.setdefault((each.kernel, each.changes), []).append(each)
    return [UpgradeGroup(*key, tuple(members)) for key, members in found.items()]


def headline(report: UpgradeReport) -> str:
    """The number of kernels that get worse, of all, and the versions."""
    worse = {(each.kernel, each.configuration) for each in report.worse}
    first, *others = report.versions
    of = units.counted(report.kernels, "kernel")
    verb = "is" if len(worse) == 1 else "are"
    said = (
        f"{len(worse)} of {of} {verb} worse" if worse else f"no kernel of {report.kernels} is worse"
    )
    return f"Triton {first} → {', '.join(others)} on {', '.join(report.archs)}: {said}"


def render_text(report: UpgradeReport, *, width: int = 80, color: bool = False) -> str:
    """The kernels that change, those at the greatest risk first, and the number of the others."""
    return drawn(_blocks(report, width), width, color)


def _blocks(report: UpgradeReport, width: int) -> Iterator[RenderableType]:
    yield note_block("", visible(headline(report), SENTENCE), "bold")
    for group in groups_of(report.upgrades):
        yield _group(group, width)
    if report.unchanged:
        yield Text(f"{units.counted(report.unchanged, 'kernel')} unchanged.")
    for group in groups_of(report.rejected):
        yield Group(
            heading(
                shortened(visible(group.kernel), width),
                ", ".join(dict.fromkeys(each.arch for each in group.members)),
            ),
            note_block("", f"no version compiles {_variants(group)}: {_reason(group)}", "dim"),
        )
    yield from note_blocks("Note: ", report.failures)


def _group(group: UpgradeGroup, width: int) -> RenderableType:
    rows = grid("", "")
    for change in group.changes:
        sides = (shortened(visible(side), _MOST_REASON) for side in (change.before, change.after))
        rows.add_row(Text(change.kind, _STYLES[change.loss > 0]), Text(" → ".join(sides)))
    lead = heading(shortened(visible(group.kernel), width), group.where)
    about = [note_block("", visible(group.about, SENTENCE), "dim")] if group.about else []
    return Group(lead, *about, rows)


def _variants(group: UpgradeGroup) -> str:
    return visible(group.about, SENTENCE) or "it"


def _reason(group: UpgradeGroup) -> str:
    return shortened(visible(group.changes[0].after), _MOST_REASON)


_CHANGE = JsonShape(
    UpgradeChange,
    "*",
    before="in the first version, as text",
    loss="fraction of what the kernel had; below 0 a gain",
)
_KERNEL = JsonShape(
    KernelUpgrade,
    "kernel configuration arch version",
    items_of("changes", _CHANGE),
    "launches time_ns risk worse=is_worse",
    configuration="what tells the variant from others of its name",
    version="the version that is compared with the first",
    time_ns="of the kernel in the recording; null without one",
    risk="the largest loss, times the share of the recording's kernel time",
)
UPGRADE = JsonShape(
    UpgradeReport,
    "target versions archs kernels unchanged",
    items_of("changed=upgrades", _KERNEL),
    items_of("rejected", _KERNEL),
    "failures",
    versions="the others are compared with the first",
    kernels="variants that were compared",
    changed="the greatest risk first",
    rejected="variants that no version compiles",
    failures="why kernels may be missing",
)

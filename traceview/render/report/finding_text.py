"""A finding in lines of text: what it can save, its message, and what to do."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from traceview.ranking import RankedFinding
from traceview.records import record
from traceview.render.base.links import linked
from traceview.render.base.paragraphs import joined_within, whole_sentences, wrapped
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import SENTENCE, SEVERITY_STYLES
from traceview.render.report.document import ranked_claim

INDENT = "  "
_SEPARATOR, _ARROW = " · ", "→ "
ALL = 1_000
"""Lines enough for any sentence."""
WIDEST = 100
"""Longer lines are hard to read."""


@record
class FindingText:
    """A finding in lines of `width` cells.

    With `links`, a source line becomes a link (OSC 8) where its file is on this machine.
    """

    ranked: RankedFinding
    width: int
    links: bool

    @property
    def least_action(self) -> int:
        """Lines of the first sentence of the action; 0 without one."""
        return next((lines for lines in range(1, ALL) if self._action(lines)), 0)

    def lines(self, message: int = ALL, action: int = ALL, *, refers: bool = False) -> list[Text]:
        """A head, so many lines of the message at most, and whole sentences of the action.

        If `refers`, a line says where to read an action of which not even a sentence fits.
        """
        finding, room = self.ranked.finding, self.width - len(INDENT)
        texts = [Text(line) for line in wrapped(visible(finding.message, SENTENCE), room, message)]
        steps = self._action(action)
        if refers and finding.action and not steps:
            steps = [f"see --only {self.ranked.analysis}"]
        if steps:
            texts += [Text.assemble((_ARROW, "bold"), steps[0])]
            texts += [Text(f"{' ' * len(_ARROW)}{line}") for line in steps[1:]]
        if self.links:
            texts = [linked(text, finding.subject.file, finding.subject.line) for text in texts]
        return [*self._head(), *(Text(INDENT).append_text(text) for text in texts)]

    def _action(self, most: int) -> list[str]:
        room = self.width - len(INDENT) - len(_ARROW)
        return whole_sentences(visible(self.ranked.finding.action, SENTENCE), room, most)

    def _head(self) -> list[Text]:
        """Severity, claim and analysis; in several lines where they do not fit in one."""
        finding = self.ranked.finding
        severity = Text(finding.severity, SEVERITY_STYLES[finding.severity])
        end = f"{INDENT}[{self.ranked.analysis}]"
        claimed = ranked_claim(self.ranked)
        parts = claimed.parts() if claimed else []
        room = self.width - cell_len(f"{severity.plain}{INDENT}")
        if not parts or cell_len(f"{parts[0]}{end}") <= room:
            saved = joined_within(parts, _SEPARATOR, room - cell_len(end))
            return [severity.append(f"{INDENT}{saved}" if saved else "", "bold").append(end, "dim")]
        first, *rest = wrapped(_SEPARATOR.join(parts), room, ALL)
        lines = [
            severity.append(f"{INDENT}{first}", "bold"),
            *(Text(f"{INDENT}{line}", "bold") for line in rest),
        ]
        if cell_len(f"{lines[-1].plain}{end}") > self.width:
            lines.append(Text())
        lines[-1].append(end, "dim")
        return lines

"""The table of questions in the README, made of the list of analyses."""

import re

from traceview.traces.analyses import ALL

_TABLE = re.compile(r"(?<=<!-- questions -->\n).*?(?=<!-- end of questions -->)", re.DOTALL)


def question_table() -> str:
    rows = "".join(f"| {analysis.question} | `{analysis.name}` |\n" for analysis in ALL)
    return f"| question | analysis |\n|---|---|\n{rows}"


def with_questions(page: str) -> str:
    """The page with its table of questions, where it has one, as it is now."""
    return _TABLE.sub(lambda _: question_table(), page)

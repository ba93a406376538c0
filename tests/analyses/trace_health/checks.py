"""The rows of `trace-health`."""

from tests.analyses.single_answer import rows


def status(result, check):
    return [
        row[1:] for row in rows(result, "checks", "check", "status", "detail") if row[0] == check
    ]

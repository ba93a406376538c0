"""The numbers in the JSON report of a recording, reduced to one line per table.

`python -m tests.contracts.report_numbers` writes those of all shipped recordings into
tests/data/report_numbers.json: to be run only when an answer is meant to change.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import traceview
from tests.places import DATA, REPOSITORY
from traceview.render.json import render_json

KEPT = DATA / "report_numbers.json"


def recordings() -> dict[str, Path]:
    """Every recording in the repository, by its path in it."""
    folders = (DATA, DATA / "workloads", *sorted((REPOSITORY / "reports").iterdir()))
    found = [path for folder in folders for path in sorted(folder.glob("*.sqlite.xz"))]
    return {str(path.relative_to(REPOSITORY)): path for path in found}


def report_of(path: Path) -> dict[str, Any]:
    """The JSON report of a recording."""
    document: dict[str, Any] = json.loads(
        render_json(traceview.analyze(traceview.load(path)), traceview.__version__, None)
    )
    return document


def numbers_of(document: dict[str, Any]) -> dict[str, str]:
    """For each table its rows and a digest of its numbers; the same of summaries and findings.

    Texts are left out, as wording may change. Of findings, analysis, severity and time are kept.
    """
    lines = {"trace": _digest(document["trace"]["row_counts"])}
    for name, answer in document["analyses"].items():
        if answer["status"] == "skipped":
            lines[name] = "skipped"
            continue
        lines[f"{name}.summary"] = _digest(answer["summary"])
        for table, rows in answer["tables"].items():
            lines[f"{name}.{table}"] = f"{len(rows)} rows {_digest(rows)}"
    for finding in document["findings"]:
        key = f"findings.{finding['severity']}.{finding['analysis']}"
        lines[key] = f"{lines.get(key, '')} {finding['time_at_stake_ns']}".strip()
    return lines


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(_numbers(value)).encode()).hexdigest()[:12]


def _numbers(value: Any) -> Any:
    """The numbers of a document, floats to nine digits; texts become nothing."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    if isinstance(value, float):
        return f"{value:.9g}"
    return value if isinstance(value, int) else value is None


def main() -> None:
    kept = {name: numbers_of(report_of(path)) for name, path in recordings().items()}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    sys.stderr.write(f"Wrote {KEPT}\n")


if __name__ == "__main__":
    main()

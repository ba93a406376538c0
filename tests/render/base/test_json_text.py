"""Documents with tables are written as json.dumps writes them, and findings field by field."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from traceview.base.findings import Evidence, Finding, Subject
from traceview.base.tables import Column, Table
from traceview.render.base.json_text import FINDING, clean, written
from traceview.traces.plan import RankedFinding

COLUMNS = (
    Column("name", "text", "its name", nullable=True),
    Column("calls", "int64", "times", nullable=True),
    Column("device", "int32", "GPU"),
    Column("share_pct", "float64", "of all", nullable=True),
    Column("whole", "bool", "or in part"),
)
TEXT = st.text(st.characters() | st.sampled_from('"\\%\n\x00\ud800é'), max_size=6)
CELLS = (
    st.none() | TEXT,
    st.none() | st.integers(-(2**62), 2**62),
    st.integers(-9, 9),
    st.none() | st.floats(),
    st.booleans(),
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
DOCUMENTS = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(*CELLS), max_size=5), DOCUMENTS)
def test_documents_with_tables(cells, other):
    rows = [dict(zip((c.name for c in COLUMNS), row, strict=True)) for row in cells]
    table = Table.from_rows(COLUMNS, rows)
    plain = clean({"rows": list(table.rows()), "other": other, "none": [], "nothing": {}})
    text = written({"rows": table, "other": other, "none": [], "nothing": {}})
    assert text == json.dumps(plain, indent=1, allow_nan=False)
    for row, back in zip(rows, json.loads(text)["rows"], strict=True):
        share = row["share_pct"]
        assert back["share_pct"] == (share if share is not None and math.isfinite(share) else None)
        assert back["calls"] == row["calls"]


def test_a_finding_has_all_its_fields():
    finding = Finding(
        "high",
        "{gaps:gap} of {idle_ns}.",
        "Act.",
        147_000_000,
        Subject("line", "gelu.py:31", "gelu.py", 31),
        Evidence({"gaps": 1, "idle_ns": 147_000_000}, "causes", {"cause": "launch-late"}, 5, 9),
        38.5,
    )
    assert json.loads(written(FINDING.written(finding, RankedFinding("gpu-idle", finding)))) == {
        "severity": "high",
        "message": "1 gap of 147 ms.",
        "action": "Act.",
        "time_at_stake_ns": 147_000_000,
        "share_of_step_pct": 38.5,
        "subject": {"kind": "line", "name": "gelu.py:31", "file": "gelu.py", "line": 31},
        "evidence": {
            "analysis": "gpu-idle",
            "table": "causes",
            "row": {"cause": "launch-late"},
            "start_ns": 5,
            "end_ns": 9,
            "basis": None,
            "values": {"gaps": 1, "idle_ns": 147_000_000},
        },
    }

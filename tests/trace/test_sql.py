"""SQL over the tables of a trace."""

import pytest

import traceview
from tests.places import DATA
from traceview.base.errors import InputError

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def trace():
    return traceview.load(DATA / "training.sqlite.xz")


def test_a_query_reads_the_joined_kernels_and_other_tables(trace):
    rows = trace.sql(
        "SELECT label, count(*) calls, sum(duration_ns) total FROM kernels GROUP BY 1 ORDER BY 1"
    )
    frame = trace.kernels.to_pandas().groupby("label", observed=True)["duration_ns"]
    expected = sorted(zip(frame.sum().index, frame.count(), frame.sum(), strict=True))
    assert [(label, calls, int(total)) for label, calls, total in rows.fetchall()] == expected
    assert trace.sql("SELECT count(*) FROM Copies, Devices").fetchall() == [(len(trace.copies),)]
    assert list(trace.sql("SELECT 1 AS one").df()["one"]) == [1]


@pytest.mark.parametrize(
    ("query", "what", "remedy"),
    [
        ("SELECT nothing_like_it FROM kernels", "nothing_like_it", "the tables are kernels"),
        ("SELECT * FROM nowhere", "nowhere", "the tables are kernels"),
        ("SELEC", "syntax error", "the tables are kernels"),
        ("", "selects nothing", "SELECT"),
        ("SELECT * FROM read_csv('/etc/hostname')", "disabled", "the tables"),
        ("SELECT * FROM '/etc/hostname'", "nowhere|disabled|not exist", "the tables"),
        ("COPY (SELECT 1) TO 'out.csv'", "disabled", "the tables"),
        ("ATTACH 'other.db'", "disabled", "the tables"),
        ("INSTALL httpfs", "disabled", "the tables"),
        ("SET enable_external_access = true", "locked|Cannot", "the tables"),
    ],
)
def test_a_query_that_is_wrong_or_leaves_the_trace_is_refused(
    trace, query, what, remedy, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        trace.sql(query).fetchall()
    assert any(word in str(refused.value) for word in what.split("|"))
    assert remedy in str(refused.value)
    assert not [*tmp_path.iterdir()]

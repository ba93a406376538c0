"""SQL over the tables of a trace, by DuckDB."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from traceview.base.errors import InputError, ToolNotFoundError
from traceview.traces.trace.model import Trace

if TYPE_CHECKING:
    import duckdb


def select(trace: Trace, query: str) -> duckdb.DuckDBPyRelation:
    """The rows that a query selects. Raises InputError, and ToolNotFoundError without DuckDB."""
    try:
        import duckdb
    except ImportError:
        remedy = "install it: pip install 'traceview[sql]'"
        raise ToolNotFoundError("sql() needs DuckDB", remedy) from None
    # Names of a trace are hostile text, and so may be a query that is built from them: it reads and
    # writes no file, loads no extension, and cannot undo that.
    connection = duckdb.connect(config={"threads": 2})
    for name in trace.tables:
        if re.search(rf"\b{name}\b", query, re.IGNORECASE):
            table = trace.kernels if name == "kernels" else trace.table(name)
            connection.register(name, table.to_arrow())
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")
    try:
        relation = connection.sql(query)
    except duckdb.Error as error:
        what = str(error).splitlines()[0]
        raise InputError(f"the query fails: {what}", _remedy(trace, what)) from None
    if relation is None:
        raise InputError("the query selects nothing", "begin it with SELECT or WITH")
    return relation


def _remedy(trace: Trace, what: str) -> str:
    words = what.replace('"', " ").split()
    named = next((name for name in trace.tables if name in words), None)
    if named:
        return f"columns of {named}: {', '.join(trace.table(named))}"
    return f"the tables are {', '.join(trace.tables)}"

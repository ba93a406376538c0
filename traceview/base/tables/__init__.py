"""Tables: typed columns of equal length, passed between all packages.

Columns are numpy arrays, not a pandas frame: importing pandas alone takes longer than reading a
small trace, and joins by direct addressing on integer arrays are several times faster at a
million rows. `Table.to_pandas` is there for users.
"""

from traceview.base.tables.arrays import (
    MOST_ROWS,
    NULL,
    Array,
    Integers,
    Mask,
    RowNumbers,
    TextValues,
    constant,
    joined,
    null_of,
    object_array,
    picked,
    places_of,
    row_numbers,
    thrifty,
    unbroken,
)
from traceview.base.tables.column_record import ColumnRecord
from traceview.base.tables.joined_table import JoinedTable
from traceview.base.tables.table import (
    Cell,
    Column,
    Dtype,
    Keep,
    Share,
    Table,
    TableSpec,
    column_list,
)
from traceview.base.tables.texts import MadeTexts, Texts, TextsOneByOne, rows_of

__all__ = [
    "MOST_ROWS",
    "NULL",
    "Array",
    "Cell",
    "Column",
    "ColumnRecord",
    "Dtype",
    "Integers",
    "JoinedTable",
    "Keep",
    "MadeTexts",
    "Mask",
    "RowNumbers",
    "Share",
    "Table",
    "TableSpec",
    "TextValues",
    "Texts",
    "TextsOneByOne",
    "column_list",
    "constant",
    "joined",
    "null_of",
    "object_array",
    "picked",
    "places_of",
    "row_numbers",
    "rows_of",
    "thrifty",
    "unbroken",
]

"""An export written row by row, and read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.trace.nsys.exports import (
    Row,
    write_export,
)
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def written(tables: Mapping[str, Sequence[Row]], **more: Any) -> Trace:
        return load(write_export(tmp_path / "t.sqlite", tables, **more))

    return written

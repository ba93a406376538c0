"""The recordings of a side of a comparison."""

from pathlib import Path

import pytest

from tests.build import Export
from traceview.base.errors import ComparisonRefusedError
from traceview.traces.comparison.inputs import side
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load


@pytest.mark.parametrize("times", [2, 300])
def test_a_file_named_several_times_is_refused_unread_or_read_once(times, tmp_path):
    recording = tmp_path / "one.sqlite"
    (
        Export()
        .launch(call=(0, 2_000), kernel=(3_000, 12_000))
        .launch(call=(3_000, 5_000), kernel=(12_000, 15_000))
        .write(recording)
    )
    link = tmp_path / "link.sqlite"
    link.symlink_to(recording)
    read: list[Path] = []

    def counted(path: Path) -> Trace:
        read.append(path)
        return load(path)

    given = [recording] * (times - 1) + [link]
    with pytest.raises(ComparisonRefusedError, match="are the same capture"):
        side(given, counted)
    assert not read
    assert len(side(given, counted, force=True)) == times
    assert len(read) == 1

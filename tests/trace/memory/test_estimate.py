"""Memory estimated from files, of any kind and however damaged."""

import pytest

from tests.places import DATA
from traceview.traces.trace.memory import PROGRAM_BYTES, estimated_bytes


def test_a_compressed_recording_counts_about_as_its_export(unpack):
    packed, plain = DATA / "training.sqlite.xz", unpack("training")
    beyond = [estimated_bytes(path) - PROGRAM_BYTES for path in (packed, plain)]
    assert min(beyond) > 0
    assert 0.2 < beyond[0] / beyond[1] < 5


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00", b"\x00" * 500, b"text" * 99])
def test_a_damaged_file_needs_no_more_than_the_program(tmp_path, content):
    path = tmp_path / "rank0.sqlite"
    path.write_bytes(content)
    assert estimated_bytes(path) <= PROGRAM_BYTES + 3 * len(content)
    assert estimated_bytes(tmp_path / "gone.sqlite") == PROGRAM_BYTES


def test_json_needs_its_size(tmp_path):
    path = tmp_path / "rank0.json"
    path.write_bytes(b"{" + b" " * 10_000_000)
    assert estimated_bytes(path) == pytest.approx(PROGRAM_BYTES + 6e6, rel=0.01)

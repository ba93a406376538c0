from tests.analyses.ask import ask, rows
from tests.build import Export
from traceview.analyses.memory_copies import ANALYSIS


def test_copies_by_direction_and_host_memory(tmp_path):
    export = (
        Export()
        .copy((0, 1), (10, 110), bytes=1000, kind="H2D", source="pageable")
        .copy((1, 2), (110, 210), bytes=3000, kind="H2D", source="pageable")
        .copy((2, 3), (210, 260), bytes=5000, kind="H2D", source="pinned")
        .copy((3, 4), (260, 270), kind="D2H", source="device", destination="pinned", bytes=8)
        .copy((4, 5), (270, 275), kind="D2D", source="device", destination="device", bytes=100)
    )

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("direction", "host_memory", "calls", "bytes", "total_ns", "bytes_per_s")
    assert rows(result, "copies", *figures) == [
        ("H2D", "pageable", 2, 4000, 200, 20_000_000_000),
        ("H2D", "pinned", 1, 5000, 50, 100_000_000_000),
        ("D2H", "pinned", 1, 8, 10, 800_000_000),
        ("D2D", None, 1, 100, 5, 20_000_000_000),
    ]
    assert result.findings[0].time_at_stake_ns == 200


def test_a_copy_that_took_no_time_has_no_rate(tmp_path):
    result = ask(ANALYSIS, Export().copy((0, 1), (10, 10)), tmp_path)

    assert rows(result, "copies", "bytes_per_s") == [(0,)]


def test_sets(tmp_path):
    export = Export().set((0, 1), (10, 20), bytes=50).set((1, 2), (20, 30), bytes=70)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sets", "calls", "bytes", "total_ns", "bytes_per_s") == [
        (2, 120, 20, 6_000_000_000)
    ]

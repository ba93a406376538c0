"""Pages of unified memory that move: on demand, prefetched, and outside the work of their GPU."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.memory_copies import ANALYSIS
from traceview.traces.reporting import analyze

MS = 1_000_000


def test_pages_that_unified_memory_migrates_have_rows_of_their_own(tmp_path):
    export = (
        Export()
        .copy((0, 1), (10, 110), bytes=1000, source="pinned")
        .migration((200, 300), bytes=3200)
        .migration((300, 500), bytes=3200)
        .migration((500, 550), bytes=800, cause="user prefetch")
        .migration((600, 610), bytes=320, kind="UVM D2H")
        .set((620, 630), (640, 650), bytes=10)
    )

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("direction", "host_memory", "migration_cause", "calls", "bytes", "total_ns")
    assert rows(result, "copies", *figures) == [
        ("UVM H2D", "managed", "page fault", 2, 6400, 300),
        ("H2D", "pinned", None, 1, 1000, 100),
        ("UVM H2D", "managed", "user prefetch", 1, 800, 50),
        ("UVM D2H", "managed", "page fault", 1, 320, 10),
    ]
    assert rows(result, "copies", "link_pct")[0] == (pytest.approx(100 / 3),)
    copied, *migrated = result.findings
    assert 0 <= copied.time_at_stake_ns <= 100
    assert [finding.time_at_stake_ns for finding in migrated] == [300, 10, 50]
    assert migrated[0].message.startswith(
        "2 migrations of unified memory by page faults (UVM H2D) take 300 ns for 3.20 kB each."
    )
    # The longest of these two.
    evidence = migrated[0].evidence
    assert (evidence.start_ns, evidence.end_ns) == (300, 500)


@pytest.mark.parametrize("kind", ["UVM H2D", "UVM D2H"])
def test_kernels_wait_only_for_pages_that_they_use(tmp_path, kind):
    """The CPU reads a result while the kernel runs: its faults move pages back."""
    export = Export().launch((0, 10), (20, 1020)).migration((100, 300), kind=kind)

    [found] = ask(ANALYSIS, export, tmp_path).findings

    assert ("Work on the GPU waits for pages" in found.message) is (kind == "UVM H2D")


def test_pages_hit_and_pages_moved_beside_them_are_one_finding(tmp_path):
    export = Export().launch((0, 10), (20, 1020))
    export.migration((100, 200), bytes=100).migration((300, 350), bytes=200)
    export.migration((200, 300), bytes=300, cause="speculative prefetch")

    [found] = ask(ANALYSIS, export, tmp_path).findings

    assert found.message == (
        "3 migrations of unified memory by page faults (UVM H2D) take 250 ns for 600 B in all, "
        "half of them 200 B or less each. Work on the GPU waits for pages during 250 ns of it."
    )
    assert (found.time_at_stake_ns, found.share_of_step_pct) == (250, 25.0)
    assert found.evidence.row["migration_cause"] == "page fault"


def test_a_prefetch_counts_as_far_as_no_kernel_runs(tmp_path):
    export = Export().launch((0, 10), (20, 1020)).launch((5, 15), (1620, 2020))
    export.migration((900, 1400), bytes=5000, cause="user prefetch")

    [found] = ask(ANALYSIS, export, tmp_path).findings

    assert found.message == (
        "1 prefetch of unified memory (UVM H2D, 5.00 kB) takes 500 ns (10.0 GB/s). No kernel "
        "runs for 380 ns of it."
    )
    assert (found.time_at_stake_ns, found.share_of_step_pct) == (380, 19.0)


@pytest.mark.parametrize(
    ("work_ns", "work", "severity"),
    [(5 * MS, "5.00 ms", "medium"), (40 * MS, "40.0 ms", "low"), (400 * MS, "", None)],
)
def test_pages_that_move_outside_the_work_of_their_gpu(work_ns, work, severity, tmp_path):
    begins, ends = 50 * MS, 50 * MS + work_ns
    export = Export().migration((0, 20 * MS), bytes=4000, cause="user prefetch")
    export.launch((begins - 10, begins - 5), (begins, ends))
    export.migration((ends, ends + 10 * MS), bytes=2000, kind="UVM D2H")

    findings = ask(ANALYSIS, export, tmp_path).findings

    assert [each.severity for each in findings] == ([severity] if severity else [])
    for found in findings:
        assert found.message == (
            "Unified memory moves 4.00 kB to the GPU before its work and 2.00 kB to the CPU after "
            f"it. This takes 30.0 ms, the work itself {work}."
        )
        assert (found.time_at_stake_ns, found.share_of_step_pct) == (30 * MS, None)


@pytest.mark.parametrize("prefetched", [0, 1, 3])
@pytest.mark.parametrize("up", [False, True])
def test_what_is_prefetched_needs_no_prefetch(tmp_path, prefetched, up):
    export, end = Export(), 90 * MS
    if up:
        export.migration((0, 20 * MS), cause="user prefetch")
    export.launch((50 * MS - 10, 50 * MS - 5), (50 * MS, end))
    for number in range(3):
        cause = "user prefetch" if number < prefetched else "page fault"
        span = (end + number * 10 * MS, end + (number + 1) * 10 * MS)
        export.migration(span, kind="UVM D2H", cause=cause)

    [found] = ask(ANALYSIS, export, tmp_path).findings

    assert ("refetch" in found.action) is (prefetched < 3)
    assert "ompute on the GPU what the CPU needs of it" in found.action


@pytest.mark.parametrize("schema", ["3.0.0", "3.20.3"])
def test_migrations_without_the_table_of_their_names(tmp_path, schema):
    result = ask(ANALYSIS, Export(schema).migration((200, 300)), tmp_path)

    assert rows(result, "copies", "direction", "migration_cause") == [("UVM H2D", "page fault")]


def shared_memory() -> Export:
    """In both steps the CPU touches pages, then the GPU does, in a kernel of 50 µs."""
    export = Export()
    for step, start in enumerate((0, 1_000_000)):
        export.range(f"step_{step}", start, start + 900_000)
        export.migration((start + 100_000, start + 200_000), kind="UVM D2H")
        export.launch((start + 300_000, start + 305_000), (start + 310_000, start + 360_000))
        export.migration((start + 320_000, start + 350_000))
    return export


def test_pages_that_go_back_after_the_last_kernel_cost_the_gpu_no_time(tmp_path):
    export = Export().launch((0, 10), (20, 1020)).migration((120, 420))
    export.migration((1000, 1500), kind="UVM D2H")

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "copies", "direction", "total_ns") == [("UVM D2H", 500), ("UVM H2D", 300)]
    assert [finding.time_at_stake_ns for finding in result.findings] == [300, 20]
    assert [finding.share_of_step_pct for finding in result.findings] == [30.0, 2.0]


def test_page_migrations_are_not_reported_as_lost_launches(tmp_path):
    trace = shared_memory().load(tmp_path)
    report = analyze(trace, ("gpu-idle", "trace-health"))

    idle = report.outcomes["gpu-idle"]
    assert rows(idle, "devices", "busy_ns", "idle_ns") == [(100_000, 950_000)]
    assert rows(idle, "causes", "cause") == [("launch-late",), ("page-migration",)]
    assert "no launch call" not in str(report.findings)


def test_page_migrations_are_selected_by_their_time(tmp_path):
    result = ask(ANALYSIS, shared_memory(), tmp_path, include=("step_1",))

    assert rows(result, "copies", "direction", "calls") == [("UVM D2H", 1), ("UVM H2D", 1)]

"""Scheduling events of threads: only what is between out and in is an absence."""

from tests.build import Export, global_tid


def runs(export, folder):
    trace = export.load(folder)
    table = trace.recorded("thread_runs")
    return list(zip(*(table[c].tolist() for c in ("thread", "start_ns", "end_ns")), strict=True))


def test_a_thread_runs_between_coming_in_and_going_out(tmp_path):
    export = Export().call("cudaMalloc", 0, 1).off_cpu((100, 200), (300, 500))
    assert sorted(runs(export, tmp_path)) == [(0, 99, 100), (0, 200, 300), (0, 500, 501)]


def test_a_lost_event_invents_no_absence(tmp_path):
    """Out, out, in, in: whether it ran between the first two or the last two is not known."""
    export = Export().call("cudaMalloc", 0, 1).off_cpu()
    for time, enters in ((100, 0), (200, 0), (300, 1), (400, 1)):
        export.raw(
            "SCHED_EVENTS", start=time, cpu=0, isSchedIn=enters, globalTid=global_tid(1, None)
        )
    assert sorted(runs(export, tmp_path)) == [
        (0, 99, 100),
        (0, 100, 200),
        (0, 300, 400),
        (0, 400, 401),
    ]


def test_threads_that_nothing_else_speaks_of_are_left_out(tmp_path):
    """The recorder sees every process of the machine."""
    export = Export().call("cudaMalloc", 0, 1).off_cpu((1, 2)).off_cpu((100, 200), process=9)
    trace = export.load(tmp_path)
    assert len(trace.processes) == len(trace.threads) == 1
    assert set(trace.recorded("thread_runs")["thread"].tolist()) == {0}


def test_without_scheduling_events_the_table_is_absent(tmp_path):
    assert "thread_runs" not in Export().call("cudaMalloc", 0, 1).load(tmp_path).tables


def test_an_empty_table_is_empty(tmp_path):
    trace = Export().call("cudaMalloc", 0, 1).off_cpu().load(tmp_path)
    assert len(trace.table("thread_runs")) == 0

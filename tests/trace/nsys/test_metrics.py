"""Sampled GPU metrics: which are kept, of which GPU they are, and files that are damaged."""

from tests.build import Export


def samples(trace):
    return [
        (row["time_ns"], row["device"], row["metric"], row["value_pct"])
        for row in trace.table("gpu_metrics").rows()
    ]


def test_read_and_written_are_kept(tmp_path):
    trace = Export().sampled((100, 40, 3), (200, 41, 4)).gpu(0).load(tmp_path)

    assert samples(trace) == [
        (100, 0, "dram-read", 40),
        (100, 0, "dram-write", 3),
        (200, 0, "dram-read", 41),
        (200, 0, "dram-write", 4),
    ]


def test_samples_of_two_gpus(tmp_path):
    export = Export().gpu(0).gpu(1).sampled((100, 1, 2), device=1).sampled((50, 3, 4), device=0)

    assert samples(export.load(tmp_path)) == [
        (50, 0, "dram-read", 3),
        (50, 0, "dram-write", 4),
        (100, 1, "dram-read", 1),
        (100, 1, "dram-write", 2),
    ]


def test_not_recorded_and_nothing_sampled_are_different(tmp_path):
    assert "gpu_metrics" not in Export().load(tmp_path).tables
    other = tmp_path / "other"
    other.mkdir()
    assert samples(Export().sampled().load(other)) == []


def test_other_metrics_of_the_same_sampler(tmp_path):
    export = (
        Export().gpu(0).sampled((1, 2, 3), names=("PCIe RX Throughput", "DRAM Write Bandwidth"))
    )

    assert samples(export.load(tmp_path)) == [(1, 0, "dram-write", 3)]


def test_of_a_gpu_that_is_not_described(tmp_path):
    assert samples(Export().gpu(0).sampled((1, 2, 3), device=9).load(tmp_path)) == []


def test_values_that_are_no_per_cents(tmp_path):
    trace = Export().gpu(0).sampled((1, 5_000_000_000, -4)).load(tmp_path)

    assert [value for *_, value in samples(trace)] == [100, 0]


def test_values_that_are_no_whole_numbers_leave_the_rest_readable(tmp_path):
    export = Export().gpu(0).sampled((1, 2, 3)).launch((0, 1), (2, 3))
    export._rows["GPU_METRICS"][0]["value"] = "many"
    trace = export.load(tmp_path)

    assert "gpu_metrics" not in trace.tables
    assert len(trace.kernels) == 1
    assert trace.warnings == (
        "column value of table GPU_METRICS contains str values instead of integers; the table was "
        "left out",
    )

"""Numbers become text in one place, and the text is right at the edges."""

import pytest

from traceview.base import units

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("total_ns", 0, "0 ns"),
        ("total_ns", 999, "999 ns"),
        ("total_ns", 1_000, "1.00 µs"),
        ("total_ns", 999_499, "999 µs"),
        ("total_ns", 999_600, "1.00 ms"),
        ("total_ns", 1_234_567, "1.23 ms"),
        ("total_ns", -1_234_567, "-1.23 ms"),
        ("total_ns", 61_500_000_000, "61.5 s"),
        ("total_ns", 12_345_678_900_000, "12,346 s"),
        ("total_ns", INT64_MAX, "9,223,372,037 s"),
        ("total_ns", INT64_MIN, "-9,223,372,037 s"),
        ("mean_ns", 12.345, "12.3 ns"),
        ("ns", 5, "5 ns"),
        ("bytes", 0, "0 B"),
        ("bytes", 999, "999 B"),
        ("bytes", 1_000, "1.00 kB"),
        ("shared_memory_bytes", 49_152, "49.2 kB"),
        ("bytes", 143_771_000_000, "144 GB"),
        ("bytes", INT64_MAX, "9,223 PB"),
        ("achieved_bytes_per_s", 4.203e12, "4,203 GB/s"),
        ("bytes_per_s", 12_300_000, "12.3 MB/s"),
        ("flop", 1_000, "1.00 kFLOP"),
        ("achieved_flop_per_s", 1.979e15, "1,979 TFLOP/s"),
        ("flop_per_byte", 0.083, "0.0830 FLOP/B"),
        ("flop_per_byte", 128, "128 FLOP/B"),
        ("share_pct", 0, "0.0 %"),
        ("share_pct", 0.049, "<0.1 %"),
        ("share_pct", -0.01, "0.0 %"),
        ("share_pct", 12.34, "12.3 %"),
        ("share_pct", 100.0, "100.0 %"),
        ("speedup_factor", 7.395, "7.4×"),
        ("width_bits", 128, "128 bit"),
        ("clock_hz", 1_980_000_000, "1.98 GHz"),
        ("calls", 1_234_567, "1,234,567"),
        ("calls", -1, "-1"),
        ("calls", INT64_MAX, "9,223,372,036,854,775,807"),
        ("mean_queue_depth", 9.996, "10.0"),
        ("mean_queue_depth", 0.0, "0"),
        ("waves", 1.954, "1.95"),
        ("waves", 1e-5, "0.000010"),
        ("process_id", 1_234_567, "1234567"),
        ("start_ns", 12_345_678_901, "12.345679 s"),
        ("cpu_end_ns", 0, "0.000000 s"),
        ("idle_ns", None, "–"),
        ("bytes_per_s", float("nan"), "–"),
        ("bytes_per_s", float("inf"), "∞"),
        ("bytes_per_s", float("-inf"), "-∞"),
        ("in_graph", True, "yes"),
        ("in_graph", False, "no"),
        ("total_ns", "already text", "already text"),
    ],
)
def test_quantity_is_read_off_the_name(name, value, text):
    assert units.quantity(name, value) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("total_ns", "total"),
        ("queue_wait_p90_ns", "queue wait p90"),
        ("bytes", "bytes"),
        ("shared_memory_bytes", "shared memory"),
        ("bytes_per_s", "bytes/s"),
        ("achieved_bytes_per_s", "achieved bytes/s"),
        ("achieved_flop_per_s", "achieved FLOP/s"),
        ("flop_per_byte", "FLOP/B"),
        ("flop", "FLOP"),
        ("busy_pct", "busy %"),
        ("range_path", "range path"),
        ("cpu_start_ns", "CPU start"),
        ("api", "API"),
        ("calls", "calls"),
    ],
)
def test_label_drops_the_unit_that_the_values_carry(name, text):
    assert units.label(name) == text


def test_stem_is_said_before_a_value():
    assert units.stem("busy_pct") == "busy"
    assert units.stem("achieved_bytes_per_s") == "achieved"
    assert units.stem("max_queue_depth") == "max queue depth"
    assert units.stem("bytes") == "bytes"


def test_labels_of_columns_that_share_a_stem_differ():
    names = ["busy_ns", "busy_pct", "achieved_bytes_per_s", "achieved_flop_per_s"]
    assert len({units.label(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "largest", "expected"),
    [
        ("total_ns", 12_000_000, (1e6, "ms")),
        ("total_ns", 0, (1.0, "ns")),
        ("bytes_per_s", 4.2e12, (1e9, "GB/s")),
        ("share_pct", 80.0, (1.0, "%")),
        ("calls", 1e6, (1.0, "")),
    ],
)
def test_axis_scales_to_its_largest_value(name, largest, expected):
    assert units.axis(name, largest) == expected


def test_only_points_in_time_are_moments():
    assert units.is_moment("start_ns")
    assert units.is_moment("gpu_end_ns")
    assert units.is_moment("time_ns")
    assert not units.is_moment("send_ns")
    assert not units.is_moment("time_at_stake_ns")


def test_named_forms():
    assert units.duration(1_500) == "1.50 µs"
    assert units.duration(None) == "–"
    assert units.size(4_194_304) == "4.19 MB"
    assert units.percent(50) == "50.0 %"
    assert units.count(12_345) == "12,345"
    assert units.counted(1, "kernel") == "1 kernel"
    assert units.counted(2_000, "copy", "copies") == "2,000 copies"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (
            "step_#/forward GPT/transformer.h.#/transformer.h.#.mlp",
            "step_#/forward GPT/transformer.h.#/mlp",
        ),
        ("h.0/h.0.attn/h.0.attn.out", "h.0/attn/out"),
        ("h.0/h.01.attn", "h.0/h.01.attn"),
        ("a/a.", "a/a."),
        ("", ""),
    ],
)
def test_a_path_of_modules_does_not_repeat_the_name_around(path, shown):
    assert units.quantity("range_path", path) == shown
    assert units.quantity("file", path) == path


@pytest.mark.parametrize(
    ("time_ns", "error_ns", "text"),
    [
        (24_910_000, 312_000, "24.9 ± 0.4 ms"),
        (17_576_798, 2_402, "17.6 ms"),
        (553_000, 157_000, "550 ± 160 µs"),
        (4_240_000, 6_580_000, "up to 10.8 ms"),
        (5_900_000, 5_970_000, "up to 11.9 ms"),
        (1_080_000, 1_020_000, "up to 2.10 ms"),
        (1_240_000, 1_020_000, "1.2 ± 1.1 ms"),
        (17_576_798, 52_402, "17.6 ± 0.1 ms"),
        (34_600_000_000, 12_900, "34.6 s"),
        (200_000, 0, "200 µs"),
        (0, 1_500, "up to 1.50 µs"),
        (999, 1, "999 ± 1 ns"),
    ],
)
def test_a_duration_and_its_error_have_one_unit(time_ns, error_ns, text):
    assert units.with_error(time_ns, error_ns) == text


@pytest.mark.parametrize(
    ("after", "error", "text"),
    [
        (4, 0, "2.5×"),
        (4, 0.01, "2.5×"),
        (4, 1, "2.0 to 3.3×"),
        (0.65, 0.6, "at least 8.0×"),
        (0.2, 0.05, "40.0 to 66.7×"),
        (0.2, 11, "at least 0.9×"),
        (0.05, 0, "at least 200.0×"),
    ],
)
@pytest.mark.parametrize("unit_ns", [1_000, 1_000_000_000])
def test_a_speed_up_is_as_sure_as_the_time_left(unit_ns, after, error, text):
    assert units.times_as_fast(10 * unit_ns, after * unit_ns, error * unit_ns) == text

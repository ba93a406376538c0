"""Fits of times: each form is found from points that follow it."""

import math

import numpy as np
import pytest

from tests.bench.timing.test_measurement import timing
from traceview.base.errors import InputError
from traceview.trials.bench import fit
from traceview.trials.bench.growth import fit_timings

SIZES = [2**k for k in range(4, 20)]


def noisy(values, percent=1.0):
    made = np.random.default_rng(0)
    return [value * (1 + made.uniform(-percent, percent) / 100) for value in values]


def test_a_line():
    steps = [1, 2, 4, 8, 16]
    found = fit(zip(steps, noisy([500_000 + 2_100_000 * s for s in steps], 0.2), strict=True))
    assert found.kind == "linear"
    assert found.slope_ns == pytest.approx(2_100_000, rel=0.01)
    assert found.base_ns == pytest.approx(500_000, rel=0.05)
    assert found.sentence("step") == "linear, 2.10 ms per step (r² 0.999)"


def test_flat_and_then_a_line_that_starts_where_they_cross():
    times = noisy([max(8_000, 8_000 + 3.0 * (size - 1024)) for size in SIZES])
    found = fit(zip(SIZES, times, strict=True))
    assert found.kind == "flat-then-linear"
    assert found.base_ns == pytest.approx(8_000, rel=0.02)
    assert found.flat_until == pytest.approx(1024, rel=0.15)
    assert found.slope_ns == pytest.approx(3.0, rel=0.02)
    assert "flat below 1,0" in found.sentence() or "flat below 9" in found.sentence()


def test_the_small_sizes_count_as_much_as_the_large():
    # Unweighted least squares would not see 8 µs beside 1.6 ms.
    times = [8_000 + 3.0 * size for size in SIZES]
    assert fit(zip(SIZES, times, strict=True)).base_ns == pytest.approx(8_000, rel=1e-6)


def test_flat():
    found = fit([(1, 100.0), (2, 104.0), (64, 98.0)])
    assert found.kind == "flat"
    assert found.sentence() == "flat, 101 ns at every size"


@pytest.mark.parametrize(("rise", "kind"), [(1.0, "linear"), (0.02, "flat")])
def test_sizes_that_hardly_differ_are_flat_only_if_the_time_does_not_follow(rise, kind):
    found = fit([(steps, 1e6 * (20 + rise * (steps - 20))) for steps in (20, 21, 22)])
    assert found.kind == kind
    if kind == "linear":
        assert found.slope_ns == pytest.approx(1e6)


@pytest.mark.parametrize("place", range(4))
def test_one_delayed_size_does_not_make_a_flat_time_grow(place):
    times = [490e3, 480e3, 500e3, 485e3, 495e3]
    times[place] *= 1.25
    found = fit(zip([1 << k for k in range(8, 17, 2)], times, strict=True))
    assert found.kind == "flat"
    assert found.relative_error < 0.15


def test_a_rise_at_the_largest_size_is_not_noise():
    times = [490e3, 480e3, 500e3, 485e3, 690e3]
    assert fit(zip([1 << k for k in range(8, 17, 2)], times, strict=True)).kind != "flat"


def test_noise_over_sizes_that_hardly_differ_is_no_line():
    assert fit([(20, 1.0e6), (21, 1.1e6), (22, 0.99e6), (23, 1.05e6)]).kind == "flat"


@pytest.mark.parametrize(
    "point", [(4, 0.0), (4, -1.0), (4, math.nan), (4, math.inf), (math.nan, 1)]
)
def test_impossible_times_are_refused(point):
    with pytest.raises(InputError, match="pass finite sizes and positive times"):
        fit([(1, 1.0), (2, 2.0), point])


def test_a_call_that_takes_no_measurable_time_can_be_fitted():
    found = fit_timings([(size, timing(0.0, clock="perf-counter")) for size in (1, 2, 4)])
    assert found.kind == "flat"


@pytest.mark.parametrize("turn", [100, 1024, 5000, 40_000])
@pytest.mark.parametrize("seed", range(5))
def test_the_turn_is_found_wherever_it_is(turn, seed):
    made = np.random.default_rng(seed)
    times = [max(8e3, 8e3 * size / turn) * (1 + made.normal(0, 0.01)) for size in SIZES]
    found = fit(zip(SIZES, times, strict=True))
    assert found.kind == "flat-then-linear"
    assert found.flat_until == pytest.approx(turn, rel=0.1)


def test_the_line_is_the_one_numpy_fits():
    x = np.array(SIZES, float)
    y = np.array(noisy([9e3 + 3 * size for size in SIZES]))
    slope, base = np.polyfit(x, y, 1, w=1 / y)
    found = fit(zip(x, y, strict=True))
    assert (found.slope_ns, found.base_ns) == (pytest.approx(slope), pytest.approx(base))


def test_a_power_is_not_called_a_line():
    sizes = [128, 256, 512, 1024, 2048]
    found = fit((n, t) for n, t in zip(sizes, noisy([n**3 for n in sizes]), strict=True))
    assert found.kind == "power"
    assert found.exponent == pytest.approx(3, abs=0.02)
    assert found.sentence().startswith("grows as size to the power of 3.0")


def test_without_a_good_fit_no_form_is_claimed():
    found = fit(zip([1, 2, 3, 4, 5, 6], [9e3, 1e3, 8e3, 2e3, 9e3, 1e3], strict=True))
    assert found.kind == "none"
    assert found.sentence().startswith("no line fits, the error is ")


@pytest.mark.parametrize("points", [[], [(1, 5.0)], [(1, 5.0), (2, 9.0)], [(1, 5.0)] * 5])
def test_two_sizes_make_no_line(points):
    assert fit(points).kind == "none"
    assert fit(points).sentence().endswith("too few for a line")


@pytest.mark.parametrize(("host_ns", "cause"), [(9_000, " (launch-bound)"), (2_000, "")])
def test_the_flat_part_may_be_launch_bound(host_ns, cause):
    points = [
        (size, timing(max(8_000, 8.0 * size), host_ns=host_ns, clock="wall")) for size in SIZES
    ]
    found = fit_timings(points)
    assert found.kind == "flat-then-linear"
    assert found.launch_bound == bool(cause)
    assert found.sentence().endswith(f"flat below 1,000{cause}")


def test_on_a_cpu_nothing_is_launch_bound():
    points = [(n, timing(max(8_000, 8.0 * n), host_ns=9e9, clock="perf-counter")) for n in SIZES]
    assert fit_timings(points).launch_bound is None


@pytest.mark.parametrize(
    ("unit", "slope", "text"),
    [
        ("element", 2.0, "2.00 ns per element"),
        ("unit of size", 2.0, "2.00 ns per unit of size"),
        ("unit of size", 0.5, "500 ns per thousand units of size"),
        ("step", 1e-4, "100 ns per million steps"),
    ],
)
def test_the_slope_is_shown_per_unit(unit, slope, text):
    found = fit([(x, 10.0 + slope * x) for x in (1e3, 1e6, 2e6, 4e6)])
    assert found.sentence(unit) == f"linear, {text} (r² 1.0)"


def test_the_swept_parameter_is_named():
    flat = fit([(1, 100.0), (2, 104.0), (64, 98.0)])
    assert flat.sentence("step", "steps") == "flat, 101 ns at every value of steps"
    power = fit([(n, float(n**3)) for n in (2, 4, 8, 16)])
    assert power.sentence("layer", "layers") == "grows as layers to the power of 3.00 (r² 1.0)"
    assert fit([(1, 1.0), (2, 2.0)]).sentence("step", "steps").startswith("2 values of steps, ")

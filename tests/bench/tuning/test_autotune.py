"""The fastest of several configurations is found, and failures of some of them are survived."""

from dataclasses import replace

import pytest

from tests.bench.tuning.tuning_cases import KEY, tuned
from traceview.base.errors import InputError
from traceview.trials.bench import autotune


class Kernel:
    """A kernel with given times, and a clock that returns them."""

    def __init__(self, **times_ns):
        self.times_ns, self.trials = times_ns, dict.fromkeys(times_ns, 0)
        self.now = ""

    def run(self, config):
        self.now = config["name"]
        if self.times_ns[self.now] is None:
            raise RuntimeError("out of resources: shared memory\nmore")

    def time(self, call, trials):
        from tests.bench.timing.test_measurement import timing

        call()
        self.trials[self.now] += trials
        return timing(*[self.times_ns[self.now]] * trials)


def configs(*names):
    return [{"name": name} for name in names]


def test_the_fastest_is_found_and_the_slow_are_not_timed_for_long():
    kernel = Kernel(a=100, b=110, c=120, d=130, e=1000, f=90, g=140, h=150)
    found = autotune(kernel.run, configs(*"abcdefgh"), time=kernel.time)
    assert (found.config, found.median_ns) == ({"name": "f"}, 90)
    # Three calls were enough to see that e is ten times slower.
    assert kernel.trials["e"] == 3
    assert kernel.trials["h"] < kernel.trials["f"]
    assert found.trials == sum(kernel.trials.values()) < 8 * 30
    dropped = {each.config["name"]: each.dropped for each in found.candidates}
    assert dropped["e"] == "its first calls took at least 10.0 times the best median"
    assert dropped["h"] == "in the slower half after 3 trials"
    assert dropped["f"] is None


def test_one_slow_call_drops_nothing():
    kernel, slow = Kernel(a=100, b=50), [1000]

    def time(call, trials):
        found = kernel.time(call, trials)
        return replace(found, samples_ns=(slow.pop(),)) if kernel.now == "b" and slow else found

    found = autotune(kernel.run, configs("a", "b"), time=time)
    assert (found.config, found.median_ns) == ({"name": "b"}, 50)


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: an illegal memory access was encountered",
        "Triton Error [CUDA]: an illegal memory access was encountered",
        "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure",
    ],
)
def test_an_error_that_breaks_cuda_ends_tuning_and_is_not_stored(cache, clock, message):
    """Everything tried after it would fail, so that earlier candidates would win by default."""

    def run(block):
        if block == 256:
            raise RuntimeError(message)
        return block

    broke = "broke CUDA in this process: RuntimeError: "
    with pytest.raises(InputError, match=f"configuration {{'block': 256}} {broke}"):
        autotune(
            lambda config: run(**config), [{"block": 512}, {"block": 256}], key=KEY, cache=cache
        )
    assert cache.get(KEY) is None
    with pytest.raises(InputError, match=f"gelu with block size 256 {broke}"):
        tuned(cache, run)


def test_a_recoverable_cuda_error_drops_only_its_configuration():
    def run(config):
        if config["name"] == "a":
            raise RuntimeError("CUDA error: invalid configuration argument")

    assert autotune(run, configs("a", "b")).config == {"name": "b"}


def test_without_a_running_configuration_the_error_is_named():
    kernel = Kernel(a=100, b=5000)

    def time(call, trials):
        if kernel.trials["a"] > 1:
            raise RuntimeError("out of memory")
        return kernel.time(call, trials)

    with pytest.raises(InputError, match="none of 2 configurations runs: RuntimeError: out of mem"):
        autotune(kernel.run, configs("b", "a"), time=time)


def test_a_time_that_is_no_number_does_not_win():
    kernel = Kernel(a=float("nan"), b=100, c=0)
    assert autotune(kernel.run, configs("a", "b"), time=kernel.time).config == {"name": "b"}
    assert autotune(kernel.run, configs("c", "b"), time=kernel.time).config == {"name": "c"}


def test_configurations_may_be_a_generator():
    assert autotune(lambda config: None, ({"n": n} for n in (1, 2))).config["n"] in (1, 2)


def test_a_configuration_that_fails_is_dropped_with_its_error():
    kernel = Kernel(a=None, b=100)
    found = autotune(kernel.run, configs("a", "b"), time=kernel.time)
    assert found.config == {"name": "b"}
    assert found.candidates[0].dropped == "RuntimeError: out of resources: shared memory"


def test_no_configuration_runs():
    kernel = Kernel(a=None)
    with pytest.raises(InputError, match="none of 1 configurations runs: RuntimeError: out of"):
        autotune(kernel.run, configs("a"), time=kernel.time)
    with pytest.raises(InputError, match="no configurations"):
        autotune(kernel.run, [])


def test_a_result_is_kept_while_the_configurations_are_the_same(cache):
    kernel = Kernel(a=100, b=50)
    first = autotune(kernel.run, configs("a", "b"), key=KEY, cache=cache, time=kernel.time)
    before = dict(kernel.trials)
    second = autotune(kernel.run, configs("a", "b"), key=KEY, cache=cache, time=kernel.time)
    assert (first.cached, second.cached) == (False, True)
    assert second.config == {"name": "b"}
    assert second.median_ns == 50
    assert kernel.trials == before
    third = autotune(kernel.run, configs("b", "a"), key=KEY, cache=cache, time=kernel.time)
    assert not third.cached


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"best": 7},
        {"best": "a"},
        {"best": 0, "median_ns": "x"},
        {"best": 0, "median_ns": float("nan")},
        {"best": 0, "median_ns": -1.0},
    ],
)
def test_a_saved_result_that_makes_no_sense_is_not_believed(cache, entry):
    kernel = Kernel(a=100, b=50)
    autotune(kernel.run, configs("a", "b"), key=KEY, cache=cache, time=kernel.time)
    cache.put(KEY, {**(cache.get(KEY) or {}), **(entry or {"configs": None})})
    found = autotune(kernel.run, configs("a", "b"), key=KEY, cache=cache, time=kernel.time)
    assert not found.cached
    assert found.config == {"name": "b"}


def test_a_real_clock_tunes_too():
    found = autotune(lambda config: sum(range(config["n"])), [{"n": 200_000}, {"n": 1000}])
    assert found.config == {"n": 1000}

"""Tuning, and its results kept between runs: by key, whole, bounded, safe between processes."""

import subprocess
import sys
from dataclasses import replace

import pytest

from traceview.bench import BlockSizes, TuningCache, autotune, cache_key
from traceview.bench.machine import Machine
from traceview.errors import InputError

H200 = Machine("NVIDIA H200", "9.0", 132, 1, 1, "570", "12.8", "2.11", "3.6", "3.12", False)
KEY = cache_key("autotune", "gelu", 4096, "float32", H200)


@pytest.fixture
def cache(tmp_path):
    return TuningCache(tmp_path / "bench")


def test_a_key_holds_for_a_gpu_versions_operation_and_size_class():
    assert cache_key("autotune", "gelu", 8191, "float32", H200) == KEY
    others = (
        cache_key("autotune", "gelu", 8192, "float32", H200),
        cache_key("autotune", "gelu", 4096, "float16", H200),
        cache_key("autotune", "add", 4096, "float32", H200),
        cache_key("block-size", "gelu", 4096, "float32", H200),
        cache_key("autotune", "gelu", 4096, "float32", replace(H200, gpu="NVIDIA A100")),
        cache_key("autotune", "gelu", 4096, "float32", replace(H200, triton_version="3.7")),
        cache_key("autotune", "gelu", 4096, "float32", replace(H200, torch_version="2.12")),
    )
    assert KEY not in others


def test_with_its_source_a_result_holds_until_the_kernel_is_changed(cache):
    def key(source):
        return cache_key("autotune", "gelu", 4096, "float32", H200, source=source)

    assert key("") == KEY
    assert len({str(key(text)) for text in ("", "x + 1", "x + 2")}) == 3
    blocks(cache, source="x + 1").record(4096, "float32", 4096, 1.0)
    assert blocks(cache, source="x + 1")._best(4096, "float32") == 4096
    assert blocks(cache, source="x + 2")._best(4096, "float32") is None


def test_only_the_stored_key_is_found(cache):
    assert cache.get(KEY) is None
    cache.put(KEY, {"best": 3})
    assert cache.get(KEY) == {"best": 3}
    assert cache.get({**KEY, "dtype": "float16"}) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "null", '{"key": {}, "entry": 1}', "\xff", "[" * 9]
)
def test_a_damaged_file_is_ignored(cache, text):
    cache.put(KEY, {"best": 3})
    (file,) = cache.folder.glob("*.json")
    file.write_text(text)
    assert cache.get(KEY) is None
    cache.put(KEY, {"best": 4})
    assert cache.get(KEY) == {"best": 4}


def test_the_folder_is_bounded(tmp_path):
    cache = TuningCache(tmp_path, most=5)
    for number in range(12):
        cache.put({"n": str(number)}, {"n": number})
    assert len(list(tmp_path.glob("*.json"))) == 5
    assert cache.get({"n": "11"}) == {"n": 11}


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    cache = TuningCache(tmp_path / "file" / "bench")
    cache.put(KEY, {"best": 3})
    assert cache.get(KEY) is None


def test_a_user_without_a_home_keeps_nothing(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pathlib.Path.home", nowhere)
    cache = TuningCache()
    cache.put(KEY, {"best": 3})
    assert cache.get(KEY) is None


def test_no_part_is_left_behind(cache):
    with pytest.raises(TypeError):
        cache.put(KEY, {"best": object()})
    assert not list(cache.folder.glob(".part-*"))


def test_two_processes_lose_nothing_of_each_other(tmp_path):
    program = (
        "import sys; from pathlib import Path\n"
        "from traceview.bench.tuning.cache import TuningCache\n"
        "cache = TuningCache(Path(sys.argv[1]))\n"
        "for _ in range(40):\n"
        "    cache.update({'k': 'v'}, lambda entry: {'n': (entry or {'n': 0})['n'] + 1})\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [each.wait() for each in running] == [0, 0, 0]
    assert TuningCache(tmp_path).get({"k": "v"}) == {"n": 120}


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


def blocks(cache, **kwargs):
    return BlockSizes("gelu", cache=cache, machine=H200, **kwargs)


def test_without_history_the_rule_decides(cache):
    sizes = blocks(cache)
    assert sizes.choose(2**28, "float32") == 512  # 16 bytes × 128 threads.
    assert sizes.choose(2**28, "float16") == 1024
    assert sizes.choose(2**28, "float64") == 256
    assert sizes.choose(2**28, "float8_e4m3fn") == 2048
    assert sizes.choose(2**28, "bool") == 2048
    assert sizes.choose(2**28, "complex64") == 256
    assert sizes.choose(132 * 100, "float32") == 64  # A block for every SM.
    assert sizes.choose(1, "float32") == 64


def test_it_climbs_to_the_fastest_and_stays(cache):
    true_ns = {64: 90, 128: 70, 256: 60, 512: 50, 1024: 30, 2048: 20, 4096: 40, 8192: 80}
    sizes, tried = blocks(cache), []
    while not sizes.is_settled(2**20, "float32"):
        block = sizes.choose(2**20, "float32")
        tried.append(block)
        sizes.record(2**20, "float32", block, true_ns[block])
    assert sizes.choose(2**20, "float32") == 2048
    assert 64 not in tried
    # Another run, the same size class, knows it; another class and type do not.
    assert blocks(cache).choose(2**21 - 1, "float32") == 2048
    assert blocks(cache).is_settled(2**20, "float32")
    assert not blocks(cache).is_settled(2**21, "float32")
    assert not blocks(cache).is_settled(2**20, "float16")


def test_one_slow_measurement_does_not_settle_it(cache):
    sizes = blocks(cache, candidates=(128, 256))
    sizes.record(2**20, "float32", 256, 1e9)
    while not sizes.is_settled(2**20, "float32"):
        block = sizes.choose(2**20, "float32")
        sizes.record(2**20, "float32", block, {128: 70, 256: 50}[block])
    assert sizes.choose(2**20, "float32") == 256


def test_history_is_bounded(cache):
    sizes = blocks(cache)
    for _ in range(50):
        sizes.record(2**20, "float32", 512, 10.0)
    assert len(sizes._history(2**20, "float32")[512]) == 16


def test_tuning_by_the_clock(cache):
    def run(block):
        if block == 256:
            raise RuntimeError("out of resources")
        sum(range(block * 50))

    sizes = blocks(cache, candidates=(128, 256, 512))
    assert sizes.tune(run, 2**20, "float32", trials=3) == 512 or sizes.choose(1, "float32") == 128


BLOCK_NS = {128: 90, 256: 60, 512: 30, 1024: 50}


@pytest.fixture
def clock(monkeypatch):
    """A clock for `tune` that returns BLOCK_NS; yields how often each block size was timed."""
    from tests.bench.timing.test_measurement import timing

    timed = dict.fromkeys(BLOCK_NS, 0)

    def benchmark(call, warmup, trials):
        block = call()
        timed[block] += 1
        if sum(timed.values()) > 100:
            pytest.fail("it does not end")
        return timing(*[BLOCK_NS[block]] * trials)

    monkeypatch.setattr("traceview.bench.tuning.block_sizes.benchmark", benchmark)
    return timed


def tuned(cache, run, **kwargs):
    return blocks(cache, candidates=BLOCK_NS, **kwargs).tune(run, 2**20, "float32", trials=3)


def test_tuning_ends_where_nothing_can_be_saved(tmp_path, clock):
    (tmp_path / "file").write_text("")
    assert tuned(TuningCache(tmp_path / "file" / "bench"), lambda block: block) == 512


def test_tuning_ends_where_what_was_saved_can_only_be_read(cache, clock, monkeypatch):
    blocks(cache).record(2**20, "float32", 512, 1000.0)
    monkeypatch.setattr(cache, "_write", lambda *_: (_ for _ in ()).throw(OSError(30, "read-only")))
    assert tuned(cache, lambda block: block) == 512
    sizes = blocks(cache, candidates=BLOCK_NS)
    for _ in range(20):
        block = sizes.choose(2**20, "float32")
        sizes.record(2**20, "float32", block, BLOCK_NS[block])
    assert sizes.is_settled(2**20, "float32")
    assert sizes.choose(2**20, "float32") == 512
    # Of another class, nothing is known.
    assert not sizes.is_settled(2**21, "float32")
    assert not sizes.is_settled(2**20, "float16")


def test_an_error_of_the_users_is_raised_and_not_saved(cache, clock):
    def mistyped(block):
        return blok  # noqa: F821

    with pytest.raises(InputError) as raised:
        tuned(cache, mistyped)
    message = (
        "gelu fails with every block size; with 512 it raised NameError: name 'blok' is not defined"
    )
    assert str(raised.value).startswith(message)
    assert isinstance(raised.value.__cause__, NameError)
    assert not list(cache.folder.glob("*.json"))
    assert tuned(cache, lambda block: block) == 512


def test_an_error_in_the_users_function_is_raised_even_with_known_times(cache, clock):
    blocks(cache, candidates=BLOCK_NS).record(2**20, "float32", 512, 30.0)
    with pytest.raises(
        InputError, match="with every block size; with 256 it raised ZeroDivisionError"
    ):
        tuned(cache, lambda block: block / 0)
    assert cache.get(cache_key("block-size", "gelu", 2**20, "float32", H200)) == {
        "times": {"512": [30.0]}
    }


def test_a_block_size_that_fails_is_skipped(cache, clock):
    def run(block):
        if block in (256, 512):
            raise RuntimeError("out of resources")
        return block

    sizes = blocks(cache, candidates=BLOCK_NS)
    assert sizes.tune(run, 2**20, "float32", trials=3) == 1024
    assert clock == {128: 3, 256: 0, 512: 0, 1024: 3}
    assert sizes.choose(2**20, "float32") == 1024
    assert sizes.is_settled(2**20, "float32")
    # Settled for all that runs, once more: what fails is tried, and the best is believed.
    assert tuned(cache, run) == 1024


def test_failures_that_earlier_versions_saved_are_no_times(cache, clock):
    key = cache_key("block-size", "gelu", 2**20, "float32", H200)
    cache.put(key, {"times": {"128": [1e18] * 3, "256": [1e18] * 3, "512": [1e18] * 3}})
    assert not blocks(cache).is_settled(2**20, "float32")
    assert tuned(cache, lambda block: block) == 512


def test_block_sizes_refuse_what_makes_no_sense(cache):
    with pytest.raises(InputError, match="no block sizes"):
        BlockSizes("gelu", (), cache=cache)
    with pytest.raises(InputError, match="one of the candidates"):
        blocks(cache).record(4096, "float32", 3, 1.0)
    with pytest.raises(InputError, match="in inf ns"):
        blocks(cache).record(4096, "float32", 64, float("inf"))

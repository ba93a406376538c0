"""Block sizes by size and data type: chosen by a rule, then by earlier measurements."""

import pytest

from tests.bench.tuning.tuning_cases import BLOCK_NS, H200, blocks, tuned
from traceview.base.errors import InputError
from traceview.trials.bench import BlockSizes, TuningCache, cache_key


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


def test_tuning_ends_where_nothing_can_be_saved(tmp_path, clock):
    (tmp_path / "file").write_text("")
    assert tuned(TuningCache(tmp_path / "file" / "bench"), lambda block: block) == 512


def test_tuning_ends_where_what_was_saved_can_only_be_read(cache, clock, monkeypatch):
    blocks(cache).record(2**20, "float32", 512, 1000.0)

    def read_only(**_):
        raise OSError(30, "read-only")

    monkeypatch.setattr("traceview.trials.bench.tuning.tempfile.mkstemp", read_only)
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

"""Results of tuning kept between runs: by key, whole, bounded, safe between processes."""

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.bench.tuning.tuning_cases import H200, KEY, blocks
from traceview.trials.bench import TuningCache, cache_key


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
        "from traceview.trials.bench.tuning import TuningCache\n"
        "cache = TuningCache(Path(sys.argv[1]))\n"
        "for _ in range(40):\n"
        "    cache.update({'k': 'v'}, lambda entry: {'n': (entry or {'n': 0})['n'] + 1})\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [each.wait() for each in running] == [0, 0, 0]
    assert TuningCache(tmp_path).get({"k": "v"}) == {"n": 120}

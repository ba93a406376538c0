"""Trials of kernel configurations, by kernels and what clears the cache before them."""

import pytest

from tests.build import Export
from tests.places import REPOSITORY
from traceview.traces.analyses.phases.phases import Phase, phases
from traceview.traces.facts.compilation import compilation
from traceview.traces.facts.trials import LEAST_CLEARED_BYTES, configuration_trials
from traceview.traces.trace.load import load

US = 1_000
CLEARED = 256_000_000
GELU = "triton_poi_fused_gelu_0"


def tried(export, at_us, name, threads, *, calls=12, cleared=CLEARED):
    """Calls of a kernel, each after a memset; returns when the last one ends, in µs."""
    for _ in range(calls):
        begin = at_us * US
        export.set((begin, begin + US), (begin + 2 * US, begin + 50 * US), bytes=cleared)
        launched = (begin + US, begin + 2 * US)
        export.launch(launched, (begin + 51 * US, begin + 60 * US), name=name, blockX=threads)
        at_us += 100
    return at_us


def test_a_kernel_tried_with_several_numbers_of_threads_is_being_tuned(tmp_path):
    export = Export()
    at_us = tried(export, 0, GELU, 128)
    at_us = tried(export, at_us, GELU, 256)
    trace = export.load(tmp_path)
    [trials] = configuration_trials(trace).values()
    assert len(trials.tuned.start) == 1
    assert trials.tuned.total() > 0.9 * at_us * US


@pytest.mark.parametrize(
    "given",
    [
        {"second": 128},
        {"cleared": LEAST_CLEARED_BYTES - 1},
        {"calls": 3},
    ],
    ids=["one configuration: a benchmark", "a small memset", "few calls"],
)
def test_what_is_no_trial(tmp_path, given):
    export = Export()
    others = {key: value for key, value in given.items() if key != "second"}
    at_us = tried(export, 0, GELU, 128, **others)
    tried(export, at_us, GELU, given.get("second", 256), **others)
    found = configuration_trials(export.load(tmp_path)).values()
    assert not any(len(each.tuned.start) for each in found)


def test_the_trials_are_named_by_what_generated_the_kernels(tmp_path):
    export = Export()
    tried(export, tried(export, 0, GELU, 128, calls=80), GELU, 256, calls=80)
    found = compilation(export.load(tmp_path))
    assert len(found) == 1


def test_evaluation_stays_where_there_are_no_trials():
    trace = load(REPOSITORY / "tests" / "data" / "foreign" / "nanogpt.sqlite.xz")
    assert Phase.EVALUATION in phases(trace).phase.tolist()
    assert configuration_trials(trace) == {}


def test_a_benchmark_alone_is_no_compilation(tmp_path):
    export = Export()
    tried(export, 0, "ampere_sgemm_128x64_tn", 128, calls=200)
    assert len(compilation(export.load(tmp_path))) == 0


def test_a_comparison_of_gemms_that_trials_follow_is_part_of_them(tmp_path):
    export = Export()
    at_us = tried(export, 0, "ampere_sgemm_128x64_tn", 128, calls=80) + 300_000
    before = tried(export, at_us, "ampere_sgemm_64x64_tn", 128, calls=80)
    at_us = tried(export, before + 10_000, GELU, 128, calls=80)
    tried(export, at_us, GELU, 256, calls=80)
    found = compilation(export.load(tmp_path))
    assert [start // US for start in found.start_ns.tolist()] == [308_002]

"""Runs of serving engines, whose steps are prefills and decodes: each kind beside its own."""

import pytest

from tests.build import Export
from traceview.traces.comparison.decomposition import compare_runs
from traceview.traces.comparison.run_figures import figures_of

US = 1_000
ENGINES = {
    "vllm": ("execute_context_1(512)_generation_0(0)", "execute_context_0(0)_generation_4(4)"),
    "new vllm": (
        "execute_{}_context_1(512)_generation_0(0)",
        "execute_{}_context_0_generation_4(4)",
    ),
    "sglang": ("step[EXTEND bs=1 toks=512]", "step[DECODE bs=4]"),
}


def served(folder, engine, prefill_us, decode_us, every):
    """Sixty steps of an engine, each `every`-th a prefill."""
    export, at = Export(), 0
    for number in range(60):
        prefills = number % every == every - 1
        took = (prefill_us if prefills else decode_us) * US
        name = ENGINES[engine][0 if prefills else 1].format(number)
        begin = at
        for place in range(8):
            start = begin + 10 * US + place * took // 8
            export.launch((at, at + 2 * US), (start, start + took // 8 - US), name=f"k{place}")
            at += 3 * US
        at = begin + 15 * US + took
        export.call("cudaStreamSynchronize", begin + 30 * US, at)
        export.range(name, begin, at)
        at += 5 * US
    folder.mkdir()
    return figures_of(export.load(folder))


@pytest.mark.parametrize("engines", [("vllm", "vllm"), ("vllm", "sglang"), ("new vllm", "sglang")])
@pytest.mark.parametrize("every", [4, 6])
def test_prefills_have_a_note_beside_decodes(tmp_path, engines, every):
    before, after = (
        served(tmp_path / f"{side}", engine, prefill_us, 400, every)
        for side, (engine, prefill_us) in enumerate(zip(engines, (900, 700), strict=True))
    )
    assert list(before.loops) == list(after.loops) == ["decode", "prefill"]
    [note] = [each for each in compare_runs([before], [after]).notes if "another loop" in each]
    assert note.startswith("Of another loop, prefill, a step takes 9")
    assert " before and 7" in note


@pytest.mark.parametrize("engine", ENGINES)
def test_decodes_are_not_compared_with_prefills_without_a_word(tmp_path, engine):
    before = served(tmp_path / "before", engine, 500, 400, 6)
    after = served(tmp_path / "after", engine, 9_000, 400, 6)
    assert [next(iter(run.loops)) for run in (before, after)] == ["decode", "prefill"]
    notes = compare_runs([before], [after]).notes
    assert any(
        each.startswith("Steps of different loops are compared: decode and prefill")
        for each in notes
    )

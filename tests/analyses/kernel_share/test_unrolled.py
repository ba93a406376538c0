"""Elementwise kernels that load one element at a time, against the rate of the memory."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.kernel_share import ANALYSIS

_FORMS = {
    "nsys": "void at::native::unrolled_elementwise_kernel<at::native::{functor}, "
    "std::array<char *, (unsigned long){operands}>, (int)4, TrivialOffsetCalculator<(int)1, "
    "unsigned int>, at::native::memory::LoadWithCast<(int)1>>(int, T1, T2)",
    "gnu": "void at::native::unrolled_elementwise_kernel<{functor}, at::detail::Array<char*, "
    "{operands}>, TrivialOffsetCalculator<2, unsigned int>>(int, {functor})",
}
_SIZES = {"float": 16, "double": 32, "c10::Half": 16, "c10::BFloat16": 16}
_RATE = 4_800_000_000_000
"""Bytes per second of an H200's memory."""


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("type_", _SIZES)
@pytest.mark.parametrize("operands", [2, 3])
@pytest.mark.parametrize("pct", [30, 55, 65, 90])
def test_far_below_the_rate_of_the_memory(tmp_path, form, type_, operands, pct):
    """An H200 moves 4.8 TB/s; a thread moves four elements of each operand, or eight of 2 bytes."""
    name = _FORMS[form].format(functor=f"AddFunctor<{type_}>", operands=operands)
    found = _found(tmp_path, name, pct, operands * _SIZES[type_])
    assert len(found) == (pct < 60)
    for each in found:
        assert each.severity == "medium"
        assert each.evidence.values["memory_pct"] == pytest.approx(pct, rel=0.01)
        assert each.saving == "at-most"
        least = (100 - pct) / 100 * 20 * 200_000
        assert each.time_at_stake_ns == pytest.approx(least, rel=0.05)


@pytest.mark.parametrize(
    "functor",
    ["direct_copy_kernel_cuda<float>", "CompareFunctor<float, bool>", "Where<long, float>", "Any"],
)
def test_types_that_the_name_does_not_say_make_no_claim(tmp_path, functor):
    assert not _found(tmp_path, _FORMS["nsys"].format(functor=functor, operands=3), 30, 48)


@pytest.mark.parametrize("took_ns", [4_000, 19_000])
def test_short_calls_make_no_claim(tmp_path, took_ns):
    name = _FORMS["nsys"].format(functor="AddFunctor<float>", operands=3)
    assert not _found(tmp_path, name, 30, 48, took_ns)


def _found(tmp_path, name, pct, bytes_per_thread, took_ns=200_000):
    threads = pct / 100 * _RATE * took_ns / 1e9 / bytes_per_thread
    export, at = Export(), 50_000
    for number in range(20):
        call = 1_000 * number
        export.launch(
            (call, call + 900),
            (at, at + took_ns),
            name=name,
            gridX=round(threads / 128),
            gridY=1,
            gridZ=1,
            blockX=128,
            blockY=1,
            blockZ=1,
        )
        at += took_ns + 100
    findings = ask(ANALYSIS, export, tmp_path).findings
    return [each for each in findings if "one element at a time" in each.message]

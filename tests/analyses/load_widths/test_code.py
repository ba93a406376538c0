"""The analysis `load-widths`: which code is that of a launch."""

import pytest

from tests.analyses.load_widths.recorded_loads import (
    answer,
    costs,
    export,
    launched,
    loaded,
    ns_of,
    ptx,
)
from traceview import analyze
from traceview.base.errors import InputError
from traceview.kernels.toolchain.listings import assemble
from traceview.traces.analyses.base import Result, Skipped
from traceview.traces.analyses.load_widths import ANALYSIS
from traceview.traces.trace import Selection
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.added_tables import KERNELS_TABLE


def test_no_code_is_skipped_with_the_command_and_no_kernels_are_an_answer(tmp_path):
    outcome = ANALYSIS.run(loaded(export().drop(KERNELS_TABLE), tmp_path))
    assert isinstance(outcome, Skipped)
    assert "traceview record SCRIPT" in outcome.remedy
    assert "--cubin FILE" in outcome.remedy
    nothing = answer(export(), tmp_path)
    assert (nothing.findings, nothing.notes, nothing.summary) == ((), (), {})


def test_without_any_code_there_are_no_shares(tmp_path):
    """0 % of loads at 32 bits would read as if no kernel had any."""
    for built in (export(), export().code("other", ptx("other"))):
        outcome = ANALYSIS.run(loaded(launched(built, 0, 100, name="lib"), tmp_path))
        assert isinstance(outcome, Skipped)
        assert outcome.reason.startswith("the trace has no code of the kernels that ran")
        assert "--cubin FILE" in outcome.remedy


@pytest.mark.parametrize("name", ["training", "streams", "sync_sites", "rates"])
def test_a_recording_without_code_of_what_ran_is_no_answer(unpack, name):
    outcome = ANALYSIS.run(load(unpack(name)))
    assert isinstance(outcome, Skipped) == (name != "rates")


def test_code_of_another_architecture_is_none(tmp_path):
    built = launched(export().code("k", ptx(), arch="sm_80"), 0, 1_000_000)
    outcome = ANALYSIS.run(loaded(built, tmp_path))
    assert isinstance(outcome, Skipped)
    assert outcome.reason.endswith("1 launch of k matches none of the recorded code")


def test_variants_that_share_launches_count_once_and_claim_only_where_they_agree(tmp_path):
    took = ns_of(0.4)
    same = export().code("k", ptx(), hash="1").code("k", ptx() + "// again\n", hash="2")
    outcome = answer(launched(same, 0, took), tmp_path)
    assert outcome.summary["loads_at_most_32_bits_pct"] == 100.0
    assert len(outcome.findings) == 1
    assert sorted(costs(outcome, "at_stake_ns"))[0] == (0,)
    differ = export().code("k", ptx(), hash="1").code("k", ptx(bits=128), hash="2")
    outcome = answer(launched(differ, 0, took), tmp_path)
    assert not outcome.findings
    assert outcome.summary["loads_at_most_32_bits_pct"] == 0.0
    assert outcome.summary["loads_at_most_128_bits_pct"] == 100.0
    assert ("variants of different widths share its launches",) in costs(outcome, "why_not")


def test_a_mangled_name_joins(tmp_path):
    mangled = "_Z5twiceIfEvPKT_PS0_"
    built = export()
    built.code(mangled, ptx(mangled))
    name = "void twice<float>(const T1 *, T1 *)"
    launched(built, 0, ns_of(0.4), name=name, mangledName=built.string(mangled))
    outcome = answer(built, tmp_path)
    assert costs(outcome, "name", "verdict") == [(name, "narrow")]


def test_a_range_restricts_the_launches(tmp_path):
    took = ns_of(0.4)
    built = launched(export().code("k", ptx()).range("a", 0, 10), 2, took)
    built = launched(built, took + 100, took).range("b", took + 90, took + 110)
    whole = loaded(built, tmp_path)
    part = ANALYSIS.run(whole.but(selection=Selection(("a",))))
    assert costs(part, "calls", "total_ns") == [(1, took)]
    nothing = ANALYSIS.run(whole.but(selection=Selection((), ("a", "b"))))
    assert not len(nothing.tables["costs"])
    assert not nothing.findings


def test_code_can_be_given(tmp_path):
    (tmp_path / "k.ptx").write_text(ptx())
    trace = loaded(launched(export().drop(KERNELS_TABLE), 0, ns_of(0.4)), tmp_path)
    report = analyze(trace, "load-widths", cubins=[tmp_path / "k.ptx"])
    assert (
        "32 bits per thread per instruction at k.cu:7 and k.cu:8"
        in report.findings[0].finding.message
    )
    assert "kernel_code" not in trace.tables
    (tmp_path / "other.ptx").write_text(ptx("other"))
    with pytest.raises(InputError, match="no kernel of the files given with --cubin ran"):
        analyze(trace, "load-widths", cubins=tmp_path / "other.ptx")


def test_a_cubin_is_that_of_a_launch_only_with_its_registers(tmp_path):
    pytest.importorskip("elftools")
    try:
        cubin = assemble(ptx()).cubin
    except Exception as error:
        pytest.skip(str(error))
    from traceview.kernels.ptx.cubin import resources

    (tmp_path / "k.cubin").write_bytes(cubin)
    registers = resources(cubin)["k"].registers
    for given, rows in ((registers, 1), (registers + 40, 0)):
        built = launched(export(), 0, ns_of(0.4), registersPerThread=given)
        found = analyze(loaded(built, tmp_path), "load-widths", cubins=[tmp_path / "k.cubin"])
        outcome = found.outcomes["load-widths"]
        assert isinstance(outcome, Result if rows else Skipped)
        for finding in outcome.findings if rows else ():
            assert (
                "loads and stores 32 bits per thread per instruction at k.cu:7 and k.cu:8. It"
                in finding.message
            )

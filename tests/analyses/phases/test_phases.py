"""Findings of `phases`: compilation before the loop, and again inside it."""

import numpy as np
import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from tests.facts.phases.test_compilation import COMPILE, GENERATED, MS, launching, sampled
from traceview.base.findings import Subject
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS as GPU_IDLE
from traceview.traces.analyses.phases.analysis import ANALYSIS
from traceview.traces.analyses.verdict import verdict
from traceview.traces.facts.idle.gaps import gaps


def test_compilation_before_the_loop_is_a_finding_with_a_cache_as_remedy(tmp_path):
    export = sampled(launching(0, *range(400, 500, 10)), 1, 399, COMPILE)

    result = ask(ANALYSIS, export, tmp_path)

    [finding] = result.findings
    assert finding.severity == "high"
    assert "torch.compile took 398 ms" in finding.message
    assert "TORCHINDUCTOR_CACHE_DIR" in finding.action
    assert finding.share_of_step_pct is None
    assert ("compilation", "compilation", "torch.compile") in rows(
        result, "phases", "phase", "verdict", "compiler"
    )


def test_idle_time_of_compilation_is_not_told_as_late_launches(tmp_path):
    export = sampled(launching(0, *range(400, 500, 10)), 1, 399, COMPILE)

    late = [f for f in ask(GPU_IDLE, export, tmp_path).findings if f.severity != "info"]

    # Only the pauses of 9 ms between the later launches are.
    assert sum(finding.time_at_stake_ns for finding in late) <= 90 * MS
    causes = dict(rows(ask(GPU_IDLE, export, tmp_path), "causes", "cause", "gaps"))
    assert causes["compilation"] == 1


def test_a_short_compilation_before_a_long_run_is_information(tmp_path):
    export = sampled(launching(0, *range(100, 2100, 2)), 1, 90, COMPILE)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.severity == "info"


@pytest.mark.parametrize(
    ("first", "share"),
    [
        # After it compiled for 98 ms, the program starts up for 801 ms, then works for 99 ms.
        (900, "9.8 % of the 998 ms from the first compilation on"),
        (99, "49.7 % of the 197 ms after start-up"),
    ],
)
def test_the_share_of_compilation_names_its_whole(first, share, tmp_path):
    export = sampled(launching(*range(first, first + 100, 2)), 1, 99, COMPILE)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.startswith(f"Compilation by torch.compile took 98.0 ms ({share}")


def test_without_gpu_work_nothing_is_said_of_the_gpu(tmp_path):
    export = sampled(Export(), 1, 399, COMPILE)
    for time in (0, *range(400, 500, 10)):
        export.call("cudaLaunchKernel", time * MS, time * MS + 5_000)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.endswith(", 1 stretch). Most of it is called at train.py:7.")
    assert finding.subject.name == "train.py:7"


@pytest.mark.parametrize(
    ("kernel", "compiler", "remedy"),
    [
        ("loop_add_fusion", "XLA", "JAX_COMPILATION_CACHE_DIR"),
        ("void at::native::copy(int)", "an autotuner", "the autotuner's cache"),
    ],
)
def test_the_remedy_for_an_autotuner_is_that_of_its_framework(kernel, compiler, remedy, tmp_path):
    export = Export()
    for time in (*range(400), *range(410, 500, 10)):
        name = "RepeatBufferKernel" if time < 400 else kernel
        call, span = (time * MS, time * MS + 5_000), (time * MS + 10_000, time * MS + 400_000)
        export.launch(call, span, name=name)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.startswith(f"Compilation by {compiler} took 399 ms")
    assert remedy in finding.action
    assert ("triton.autotune" in finding.action) == (compiler != "XLA")


def recompiling(steps):
    """Steps of 100 ms, of which 40 are compilation."""
    export = Export()
    for number in range(steps):
        at = 100 * number
        export.range(f"step_{number}", at * MS, (at + 100) * MS)
        sampled(export, at + 5, at + 45, COMPILE)
        for time in range(at + 50, at + 95, 5):
            export.launch((time * MS, time * MS + 5_000), (time * MS + 9_000, (time + 4) * MS))
    return export


def test_compilation_in_each_step_is_recompilation(tmp_path):
    finding = ask(ANALYSIS, recompiling(8), tmp_path).findings[0]

    assert finding.severity == "high"
    assert finding.message.startswith(
        "Code was compiled again inside the loop by torch.compile: in 7 of 8 steps"
    )
    assert "mark_dynamic" in finding.action
    assert 35 <= finding.share_of_step_pct <= 45
    assert 7 * 38 * MS <= finding.time_at_stake_ns <= 7 * 45 * MS


@pytest.mark.parametrize(
    ("stepped", "module", "times"),
    [(True, "step", 7), (True, "step_{}", 7), (True, "operation_{}", 0), (False, "step", 0)],
)
def test_xla_compiles_again_what_it_compiled_before_in_a_loop(tmp_path, stepped, module, times):
    export = Export()
    for number in range(8):
        at = 100 * number
        if stepped:
            export.range(f"step_{number}", at * MS, (at + 100) * MS)
        name = module.format(number if "step" in module else "abcdefgh"[number])
        span = (at + 5) * MS, (at + 45) * MS
        export.range(f"XlaCompile:#module=jit_{name}#", *span, domain="TSL")
        for time in range(at + 50, at + 95, 5):
            call = time * MS, time * MS + 5_000
            export.launch(call, (time * MS + 9_000, (time + 4) * MS), name=f"fusion_{name}")

    findings = ask(ANALYSIS, export, tmp_path).findings

    again = [each for each in findings if "compiled again inside the loop" in each.message]
    assert [f"in {times} of 8 steps" in each.message for each in again] == [True] * bool(times)
    assert times or "into one jax.jit" in findings[0].action


@pytest.mark.parametrize(
    ("begun", "told"),
    [
        ((360, 560, 660), "Compilation by torch.compi"),
        ((260, 360, 560, 760), "Compilation by torch.compi"),
        ((160, 260, 360), "Code was compiled again in"),
    ],
)
def test_what_is_compiled_after_the_last_step_is_not_compiled_in_the_loop(tmp_path, begun, told):
    """As where set-up repeats and the recording ends in a long compilation."""
    export = Export()
    for at in [at for at in range(0, 500, 50) if at + 10 not in begun]:
        export.range(f"step_{at // 50}", at * MS, (at + 49) * MS)
        for time in range(at, at + 49, 10):
            export.launch((time * MS, time * MS + 5_000), (time * MS + 9_000, (time + 9) * MS))
    for at in begun:
        sampled(export, at, at + 30, COMPILE)
        export.launch(((at + 31) * MS, (at + 32) * MS), ((at + 32) * MS, (at + 33) * MS))

    messages = [each.message for each in ask(ANALYSIS, export, tmp_path).findings]

    assert [each[:26] for each in messages] == [told]
    assert "in 0 of" not in messages[0]


def test_what_one_step_compiles_is_not_compiled_again_and_again(tmp_path):
    export = Export()
    for number in range(6):
        at = 1000 * number
        export.range(f"step_{number}", at * MS, (at + 1000) * MS)
        for part in range(at, at + 1000, 250):
            if number == 3:
                sampled(export, part + 1, part + 100, COMPILE)
            for time in range(part + 110, part + 240, 10):
                export.launch((time * MS, time * MS + 5_000), (time * MS + 9_000, (time + 8) * MS))

    messages = [each.message for each in ask(ANALYSIS, export, tmp_path).findings]

    assert [each[:26] for each in messages] == ["Compilation by torch.compi"]


def test_recompilation_names_the_line_that_calls_what_is_compiled(tmp_path):
    finding = ask(ANALYSIS, recompiling(8), tmp_path).findings[0]

    assert finding.subject == Subject("line", "train.py:7", "/home/me/train.py", 7)
    assert finding.message.endswith("The call is at train.py:7.")


def test_steps_that_recompile_are_as_long_as_they_take(tmp_path):
    """Compilation in each step is no one-time cost: neither of the step nor of the GPU."""
    trace = recompiling(8).load(tmp_path)
    found = verdict(trace)

    assert found.limit == "compilation"
    assert found.step_median_ns == 100 * MS
    assert not gaps(trace).one_time[gaps(trace).start_ns > 200 * MS].any()


def test_an_ordinary_loop_has_no_finding(tmp_path):
    export = launching(*range(0, 500, 10))

    result = ask(ANALYSIS, export, tmp_path)

    assert not result.findings
    assert rows(result, "totals", "phase") == [("compute",)]


@pytest.mark.parametrize("shown", ["pauses", "range", "samples"])
@pytest.mark.parametrize("name", sorted(GENERATED))
def test_pauses_alone_make_no_finding_severe(tmp_path, name, shown):
    """A thread that calls nothing before it loads a generated kernel may do other work."""
    export, at = Export(), 0
    for number in range(3):
        if shown == "samples":
            sampled(export, at // MS + 1, at // MS + 200, COMPILE)
        elif shown == "range":
            export.range("executor_utils::Nvrtc", at + MS, at + 200 * MS)
        export.call("cuModuleLoadData", at + 200 * MS, at + 201 * MS)
        times = (at + 202 * MS, at + 203 * MS), (at + 204 * MS, at + 205 * MS)
        export.launch(*times, name=f"{name}{number}" if "nvf" in name else name)
        at += 210 * MS
    for _ in range(20):
        times = (at, at + 100), (at + 200, at + MS)
        export.launch(*times, name="own")
        at += MS
    found = ask(ANALYSIS, export, tmp_path).findings
    [severity] = [each.severity for each in found if "Compilation by" in each.message]
    assert severity == ("medium" if shown == "pauses" else "high")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        # Samples of compilation by the line that calls it.
        ({7: 60, 8: 20, 9: 20}, "Most of it is called at train.py:7."),
        ({7: 30, 8: 20, **dict.fromkeys(range(20, 70), 1)},
         "By samples, about 30.0 % of it is called at train.py:7, more than at any other line."),
        ({7: 30, 8: 28, **dict.fromkeys(range(20, 62), 1)}, None),
        (dict.fromkeys(range(7, 57), 2), None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_of_lines_that_each_call_the_compiler_the_one_that_stands_out_is_named(
    lines, told, seed, tmp_path
):
    """As in JAX outside jax.jit, where each line compiles programs of its own."""
    compiler = ("/usr/lib/python3.12/site-packages/jax/_src/compiler.py", 300, "backend_compile")
    export = launching(*range(401, 500, 2))
    calls = [line for line, number in lines.items() for _ in range(number)]
    for at, place in enumerate(np.random.default_rng(seed).permutation(len(calls))):
        line = ("/work/train.py", calls[place], "<module>")
        export.python_sample((1 + 4 * at) * MS, compiler, line)

    [finding] = [each for each in ask(ANALYSIS, export, tmp_path).findings if "XLA" in each.message]

    assert finding.message.endswith(f" {told}" if told else "idle then.")
    spread = max(lines.values()) < sum(lines.values()) / 2
    assert ("each operation is a program of its own" in finding.action) == spread

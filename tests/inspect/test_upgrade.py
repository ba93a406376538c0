"""What is said of two versions of Triton, each property varied alone; then real compilations."""

import json
from dataclasses import replace
from itertools import count

import jsonschema
import pytest

from tests.inspect.targets.python_scripts import HEADER, needs_torch, needs_triton
from tests.ptx.compiled_kernels import a_compiled, a_line, a_report, an_access
from traceview.base.errors import InputError, TraceviewError
from traceview.base.hardware import limits_of, occupancy
from traceview.cli import run
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.headless.events import Rejected
from traceview.kernels.inspect import triton_builds, upgrade
from traceview.kernels.inspect.triton_builds import TritonBuild
from traceview.kernels.ptx.accesses import TensorOp
from traceview.kernels.ptx.model import Argument
from traceview.kernels.ptx.ttgir.loop_loads import PipelineBuffer
from traceview.kernels.toolchain import triton_versions
from traceview.render.json import render_json, schema
from traceview.render.kernels.upgrade import render_text


def registers(number):
    return {"registers": number, "occupancy": occupancy(limits_of("sm_90"), 512, number)}


def loads(*accesses):
    return {"accesses": tuple(an_access(*access) for access in accesses)}


def buffers(*counts):
    each = (PipelineBuffer(a_line(), "a", number, 8192 * number) for number in counts)
    return {"pipeline_buffers": tuple(each)}


def ops(*names):
    return {"tensor_ops": tuple(TensorOp(name, None, ("f32",), 1, 8) for name in names)}


def spilled(count):
    return {"spill_bytes": count, "registers": 255}


LOSSES = (
    (registers(64), registers(72), "occupancy", "2 blocks per SM at 64 registers", 0.5),
    ({"spill_bytes": 0}, {"spill_bytes": 640}, "spills", "no spills", 5 / 6),
    ({"spill_bytes": 0}, {"spill_bytes": 32}, "spills", "no spills", 0.2),
    # As a sparse attention decode of 4 warps, written after triton#11373.
    (spilled(100), spilled(180), "spills", "100 B spilled per thread", 0.1),
    (loads((128, 2)), loads((32, 8)), "width", "loads of 2 × 128 bits at line 31", 0.75),
    (buffers(3, 3), buffers(2, 2), "copies in flight", "stages 3, 3", 1 / 3),
    (buffers(2), buffers(), "copies in flight", "stages 2", 1.0),
    (ops("wgmma.mma_async"), ops("mma"), "tensor cores", "wgmma", 0.37),
    (ops("mma"), ops(), "tensor cores", "mma.sync", 0.93),
)
UNCHANGED = (
    (registers(64), registers(63)),
    ({"spill_bytes": 400}, {"spill_bytes": 408}),
    ({"spill_bytes": 0}, {"spill_bytes": 16}),
    ({"spill_bytes": 2112}, {"spill_bytes": 2044}),
    # An unrolled loop: the same accesses, more of them.
    (loads((128, 2)), loads((128, 8))),
    # Loads that another line is named for.
    (loads((64, 16), (32, 8)), loads((32, 6))),
    # A load that becomes an asynchronous copy.
    (
        loads((128, 2)),
        {"accesses": (an_access(128, 2, kind="async-copy", opcode="cp.async.cg.shared.global"),)},
    ),
    ({"notes": ("one",)}, {"notes": ("other",)}),
)


@pytest.fixture
def compared(monkeypatch):
    """Compare builds of kernels that are reports made by hand."""

    def compare(first, second, archs=("sm_90",), rejected=((), ()), **fields):
        reports = {}
        numbers = count()

        def build(label, arch, kernels, rejections):
            compiled = []
            for changes in kernels:
                report = a_report(**changes)
                kernel = replace(report.compiled, variant=str(next(numbers)), ptx=f"{label}")
                reports[kernel.variant] = replace(report, compiled=kernel)
                compiled.append(kernel)
            return TritonBuild(label, arch, tuple(compiled), tuple(rejections), **fields)

        built = [
            build(label, arch, kernels, rejections)
            for arch in archs
            for label, kernels, rejections in zip(
                ("3.6.0", "3.7.1"), (first, second), rejected, strict=True
            )
        ]
        monkeypatch.setattr(upgrade, "versions_of", tuple)
        monkeypatch.setattr(upgrade, "builds", lambda *_: built)
        monkeypatch.setattr(upgrade, "inspect", lambda kernel, **_: reports[kernel.variant])
        return upgrade.check_upgrade("train.py", ["3.6.0", "3.7.1"])

    return compare


@pytest.mark.parametrize(("before", "after", "kind", "text", "loss"), LOSSES)
def test_each_loss_is_a_gain_the_other_way_round(compared, before, after, kind, text, loss):
    worse, better = compared([before], [after]), compared([after], [before])
    [[change]] = [each.changes for each in worse.upgrades]
    assert (change.kind, change.before) == (kind, text)
    assert change.loss == pytest.approx(loss)
    assert (len(worse.worse), worse.unchanged) == (1, 0)
    [[back]] = [each.changes for each in better.upgrades]
    assert (back.before, back.after, back.loss) == (change.after, change.before, -change.loss)
    assert better.worse == ()


@pytest.mark.parametrize(("before", "after"), UNCHANGED)
def test_schedules_of_the_same_code_are_no_change(compared, before, after):
    for one, other in ((before, after), (after, before)):
        report = compared([one], [other])
        assert (report.upgrades, report.unchanged, report.failures) == ((), 1, ())


def named(name, **changes):
    return {"compiled": a_compiled(name=name, how="launched", launches=3), **changes}


def test_the_greatest_risk_comes_first_and_what_is_unchanged_is_counted(compared):
    same = [named(f"k{number}") for number in range(30)]
    report = compared(
        [*same, named("spills"), named("scalar", **loads((128, 2)))],
        [*same, named("spills", spill_bytes=640), named("scalar", **loads((32, 8)))],
        archs=("sm_80", "sm_90"),
    )
    assert [each.kernel for each in report.upgrades] == ["spills", "spills", "scalar", "scalar"]
    assert (report.kernels, report.unchanged) == (32, 30)
    shown = render_text(report)
    assert shown.startswith("Triton 3.6.0 → 3.7.1 on sm_80, sm_90: 2 of 32 kernels are worse\n")
    assert "30 kernels unchanged." in shown
    assert "k7" not in shown
    assert shown.count("spills  sm_80, sm_90 · Triton 3.7.1") == 1


def test_time_in_the_recording_ranks(compared):
    kernels = [named("long", **registers(64)), named("short", **loads((128, 2)))]
    others = [named("long", **registers(72)), named("short", **loads((32, 8)))]
    report = compared(kernels, others, times_ns={"0": 900_000, "1": 100_000})
    assert [(e.kernel, e.time_ns, e.risk) for e in report.upgrades] == [
        ("long", 900_000, pytest.approx(0.45)),
        ("short", 100_000, pytest.approx(0.075)),
    ]
    assert "900 µs in the recording" in render_text(report)


def test_what_one_version_rejects(compared):
    lost = Rejected(a_compiled(name="lost", how="launched"), "PTXASError: ptxas: no registers")
    never = Rejected(a_compiled(name="never", how="launched"), "out of resource: tensor memory")
    report = compared([named("lost")], [], rejected=((never,), (lost, never)))
    [each] = report.worse
    assert [(c.kind, c.before, c.after) for c in each.changes] == [
        ("rejected", "compiles", "PTXASError: ptxas: no registers")
    ]
    assert [each.kernel for each in report.rejected] == ["never"]
    assert "no version compiles it: out of resource: tensor memory" in render_text(report)
    document = json.loads(render_json(report, "1.0"))
    assert document["changed"][0]["worse"] is True
    jsonschema.validate(document, schema("ptx-triton"))
    gained = compared([], [named("lost")], rejected=((lost,), ()))
    assert (gained.worse, len(gained.upgrades), gained.kernels) == ((), 1, 1)


def test_kernels_that_are_missing_are_named(compared):
    report = compared([named("fill"), named("copy")], [named("fill")])
    assert report.failures == ("1 kernel is not compiled with Triton 3.7.1 for sm_90: copy",)
    assert (report.kernels, report.unchanged, report.worse) == (1, 1, ())


def test_variants_are_told_apart_by_what_differs(compared):
    def variant(block, bits):
        arguments = (Argument("x", "*fp32", True), Argument("BLOCK", "constexpr", value=block))
        compiled = a_compiled(name="k", how="launched", arguments=arguments)
        return {"compiled": compiled, **loads((bits, 128 // bits * 2))}

    report = compared(
        [variant(512, 128), variant(1024, 128)], [variant(512, 128), variant(1024, 32)]
    )
    assert [each.configuration for each in report.upgrades] == ["BLOCK=1024"]


# Compilations, in which a folder on the path stands for another version.

KERNELS = """
import torch
from flavor import OTHER

@triton.jit
def scale(x, n, BLOCK: tl.constexpr, OTHER: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = at * n if OTHER else at
    tl.store(x + at, tl.load(x + at) * 2)

@triton.jit
def broken(x, OTHER: tl.constexpr):
    tl.static_assert(not OTHER, "not here")
    tl.store(x, 1.0)

@triton.jit
def same(x):
    tl.store(x, 2.0)

x = torch.empty(4096, device="cuda")
scale[(4,)](x, 4096, BLOCK=1024, OTHER=OTHER)
broken[(1,)](x, OTHER=OTHER)
same[(1,)](x)
print("ran", OTHER)
"""


@pytest.fixture
def two_versions(monkeypatch, tmp_path):
    """Folders that stand for Triton 1.0 and 2.0; the installed one compiles for both."""

    def folder_of(version, *_):
        folder = tmp_path / version
        folder.mkdir(exist_ok=True)
        (folder / "flavor.py").write_text(f"OTHER = {version == '2.0'}\n")
        return folder

    monkeypatch.setattr(triton_versions, "folder_of", folder_of)
    monkeypatch.setattr(upgrade, "identity", lambda kernel: kernel.name)
    monkeypatch.setattr(triton_builds, "identity", lambda kernel: kernel.name)
    path = tmp_path / "train.py"
    path.write_text(HEADER + KERNELS)
    return str(path)


@needs_triton
@needs_torch
def test_a_script_goes_on_after_a_kernel_that_does_not_compile(two_versions, capfd, monkeypatch):
    monkeypatch.setattr(upgrade, "_same_code", lambda *_: {})
    line = ["ptx", two_versions, "--triton", "1.0,2.0", "--json"]
    assert run(line) == 1
    shown = capfd.readouterr()
    document = json.loads(shown.out)
    changes = {
        each["kernel"]: [(c["kind"], c["after"]) for c in each["changes"]]
        for each in document["changed"]
    }
    assert changes["broken"][0][0] == "rejected"
    assert "not here" in changes["broken"][0][1]
    assert changes["scale"][0] == ("width", "loads of 8 × 32 bits at line 12")
    assert (document["kernels"], document["unchanged"]) == (3, 1)
    assert document["failures"] == []
    # Of many runs of the script one is heard.
    assert shown.err.count("ran") == 1


@pytest.mark.programs
@needs_triton
@needs_torch
def test_a_cache_and_equal_versions(two_versions, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("TRACEVIEW_CACHE_DIR", str(tmp_path / "cache"))
    assert run(["ptx", f"{two_versions}:same", "--triton", "1.0", "1.1"]) == 0
    assert "no kernel of 1 is worse" in capfd.readouterr().out
    folder = next((tmp_path / "cache" / "triton").iterdir())
    assert run(["ptx", str(folder), "--triton", "1.0", "1.1", "--arch", "sm_80"]) == 0
    shown = capfd.readouterr()
    assert "Triton 1.0 → 1.1 on sm_80: no kernel of " in shown.out
    assert "from Triton's intermediate code" in shown.err


@needs_triton
@needs_torch
def test_a_recording_has_its_kernels_text(two_versions, capfd):
    from tests.places import DATA

    recording = DATA / "workloads" / "gelu.sqlite.xz"
    assert run(["ptx", str(recording), "--triton", "1.0", "1.1"]) == 0
    shown = capfd.readouterr().out
    # Two variants of a kernel of Inductor, and one of the program; not the two of CUDA C++.
    assert "Triton 1.0 → 1.1 on sm_90: no kernel of 2 is worse" in shown


def test_combinations_that_make_no_sense(capsys):
    for line, message in (
        ("a.py --triton 3.6.0 3.7.1 --num-warps 4 8", "several values of --num-warps"),
        ("a.py --triton 3.6.0 --all", "--triton cannot be combined with --all"),
        ("a.py --triton 3.6.0 --sass", "--triton cannot be combined with --sass"),
        ("--diff a.py b.py --triton 3.6.0", "--triton cannot be combined with --diff"),
        ("a.py --triton new", "'new' is not a version of Triton"),
    ):
        assert run(["ptx", *line.split()]) == 2
        assert message in capsys.readouterr().err


def test_nothing_to_compare():
    with pytest.raises(InputError, match="would be compared with itself"):
        triton_builds.versions_of(["3.6.0", "3.6"])
    for build, error in (
        (TritonBuild("1.0", "sm_90", (), failure="it failed"), TraceviewError),
        (TritonBuild("2.0", "sm_90", (), failure="it failed"), None),
    ):
        built = (
            [replace(build, version="1.0", failure=build.failure)]
            if error
            else [TritonBuild("1.0", "sm_90", (a_compiled(),)), build]
        )
        if error:
            with pytest.raises(error, match=r"Triton 1\.0 for sm_90: it failed"):
                list(triton_builds.failures(built))
        else:
            assert list(triton_builds.failures(built)) == ["Triton 2.0 for sm_90: it failed"]
    assert CompileOptions().budget_s is None


@needs_triton
@pytest.mark.parametrize(
    ("body", "is_late"),
    [("raise ValueError('not within bounds')", False), ("import time; time.sleep(60)", True)],
)
def test_more_time_is_offered_only_to_what_ran_out_of_it(tmp_path, body, is_late):
    path = tmp_path / "script.py"
    path.write_text(f"{HEADER}{body}\n")
    options = CompileOptions(timeout_s=1.0)
    version = triton_versions.interpreter(triton_builds.python()).triton
    [build] = triton_builds.builds(str(path), (version,), ("sm_90",), options, print, print)
    assert build.failure.startswith("script.py ")
    assert build.failure.endswith(" allows more time") == is_late

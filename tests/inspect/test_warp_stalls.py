"""Warp samples joined to the lines that warps wait for, and to the findings on them."""

import json
from dataclasses import replace

import pytest

from tests.inspect.rules.written_ptx import need
from tests.places import DATA
from tests.ptx.compiled_kernels import a_compiled
from tests.ptx.sass.machine_codes import assembled
from tests.trace.ncu.sampled_files import ncu_report, proton_profile, source_page
from traceview import inspect_ptx
from traceview.base.errors import InputError
from traceview.cli import run
from traceview.kernels.inspect.kernel_report import subject_of
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.inspect.warp_stalls import with_samples
from traceview.kernels.ptx.cubin import machine_code
from traceview.kernels.ptx.disassembly import access_of
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.ptx.scoreboards import Scoreboards
from traceview.kernels.toolchain.listings import assemble
from traceview.traces.trace.warp_samples import read_samples

NAME = "softmax-3.9.0-sm90"


@pytest.fixture(scope="module")
def kernel():
    cubin, function, _ = assembled(NAME)
    return inspect(a_compiled(name=function.name, arch="sm_90a", cubin=cubin))


@pytest.fixture(scope="module")
def load_and_use(kernel):
    """A load of global memory, and the first instruction that waits for nothing but such loads."""
    boards = Scoreboards.of(kernel.sass, assembled(NAME)[2])
    code = kernel.sass.instructions
    for at in range(len(code)):
        awaited = [code[each] for each in boards.awaited(at)]
        if awaited and all((a := access_of(i)) and a.space == "global" for i in awaited):
            return boards.awaited(at)[0], at
    raise AssertionError("no instruction waits for a load")


def joined(kernel, tmp_path, content, note=print):
    path = tmp_path / "samples.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return with_samples([kernel], read_samples(path), path, note)[0]


def sass_of(kernel):
    guarded = (f"@{i.predicate} " if i.predicate else "" for i in kernel.sass.instructions)
    return [
        f"{guard} {i.opcode} {i.operands}"
        for guard, i in zip(guarded, kernel.sass.instructions, strict=True)
    ]


def files(kernel, stalls):
    """The same samples by instruction in both of ncu's forms."""
    cubin, function, _ = assembled(NAME)
    by_offset = {16 * index: counts for index, counts in stalls.items()}
    padded = [*sass_of(kernel), "BRA `(.L_x_9) 0x7f91b4fb36d0", "NOP"]
    return [
        ncu_report(function.name, cubin, [by_offset]),
        source_page(function.name, padded, stalls),
    ]


def test_the_line_of_the_load_is_blamed_and_not_that_of_its_use(kernel, load_and_use, tmp_path):
    load, use = load_and_use
    stalls = {use: {"long_scoreboard": 61, "selected": 4}, 0: {"wait": 35}}
    code = kernel.sass.instructions
    for content in files(kernel, stalls):
        found = joined(kernel, tmp_path, content).warp_stalls
        assert found.samples == 100
        first = found.places[0]
        assert first.place.source == code[use].source
        assert first.stalls == {"long_scoreboard": 61, "selected": 4}
        (awaited,) = first.waits_for
        assert awaited.place.source == code[load].source
        assert (awaited.samples, awaited.reason) == (61, "long_scoreboard")
        assert code[load].opcode in awaited.opcodes
        assert found.waiting_for(code[load].source) == ("long_scoreboard", 61.0)


def test_the_copies_of_a_group_are_blamed_and_not_its_commit(tmp_path):
    cubin, function, _ = assembled("matmul-3.7.1-sm80")
    matmul = inspect(a_compiled(name=function.name, arch="sm_80", cubin=cubin))
    code = matmul.sass.instructions
    last = max(at for at in range(len(code)) if code[at].opcode == "DEPBAR.LE")
    content = ncu_report(function.name, cubin, [{16 * last: {"long_scoreboard": 7}}])
    (place,) = joined(matmul, tmp_path, content).warp_stalls.places
    copies = {i.source for i in code if i.opcode.startswith("LDGSTS")}
    assert {each.place.source for each in place.waits_for} == copies
    assert {name.split(".")[0] for each in place.waits_for for name in each.opcodes} == {"LDGSTS"}


def test_lines_of_proton_are_found_whatever_folder_they_are_in(kernel, load_and_use, tmp_path):
    load, use = load_and_use
    source = kernel.sass.instructions[use].source
    elsewhere = "/another/" + source.file.rpartition("/")[2]
    lines = {(elsewhere, source.line): {"long_scoreboard": 3}, ("/x/none.py", 1): {"wait": 1}}
    found = joined(kernel, tmp_path, proton_profile(kernel.name, lines)).warp_stalls
    assert found.places[0].place.source == source
    blamed = {each.place.source for each in found.places[0].waits_for}
    assert kernel.sass.instructions[load].source in blamed
    assert found.places[1].place.source.file == "/x/none.py"
    assert found.places[1].waits_for == ()


def test_lines_of_another_version_of_the_source(kernel, load_and_use, tmp_path):
    """Refused if none is a line of this code; in between, findings are not weighed by them."""
    known = kernel.sass.instructions[load_and_use[1]].source
    moved = (known.file, known.line + 900)
    with pytest.raises(InputError, match="are of other code than was compiled here"):
        joined(kernel, tmp_path, proton_profile(kernel.name, {moved: {"wait": 5}}))
    for unknown, said in ((4, []), (10, ["10.0 %"])):
        notes: list[str] = []
        lines = {moved: {"wait": unknown}, (known.file, known.line): {"wait": 100 - unknown}}
        found = joined(kernel, tmp_path, proton_profile(kernel.name, lines), notes.append)
        assert found.warp_stalls.samples == 100
        assert (found.findings == kernel.findings) == bool(said)
        assert [note.partition(" of the samples of")[0] for note in notes] == said


def test_a_profile_without_lines_says_so(kernel, tmp_path):
    notes: list[str] = []
    content = proton_profile(kernel.name, {("k.py", 7): {"wait": 5}}).replace("k.py:7@", "")
    assert joined(kernel, tmp_path, content, notes.append).warp_stalls.samples == 5
    (note,) = notes
    assert "are without a line: start Proton before the first launch" in note


def test_samples_of_a_helper_that_is_inlined_at_two_lines_are_of_neither(kernel, tmp_path):
    helper = SourceLine("/lib/helper.py", 5)
    called = {kernel.findings[0].subject.line, kernel.sass.instructions[-1].source.line}
    inlined = tuple(
        replace(i, inlined=(helper,)) if i.source and i.source.line in called else i
        for i in kernel.sass.instructions
    )
    calling = replace(kernel, sass=replace(kernel.sass, instructions=inlined))
    content = proton_profile(kernel.name, {(helper.file, helper.line): {"wait": 5}})
    found = joined(calling, tmp_path, content)
    assert [each.place.source for each in found.warp_stalls.places] == [helper]
    assert found.findings == kernel.findings


def test_no_finding_tells_waits_for_a_line_that_nothing_can_wait_for(kernel, tmp_path):
    """Lines 60 and 61 wait for a TMA load and store."""
    cubin, function, _ = assembled("tma_copy-3.9.0-sm90")
    copy = inspect(a_compiled(name=function.name, arch="sm_90a", cubin=cubin))
    lines = sorted({i.source for i in copy.sass.instructions if i.source}, key=lambda s: s.line)
    findings = [replace(kernel.findings[0], subject=subject_of(s, copy.compiled)) for s in lines]
    content = ncu_report(function.name, cubin, [{0: {"wait": 5}}])
    found = joined(replace(copy, findings=findings), tmp_path, content).findings
    silent = [each for each in found if "samples_waiting_pct" not in each.evidence.values]
    assert {each.subject.line for each in silent} >= {60, 61}
    assert len(silent) < len(found)
    for each in found:
        said = "0.0 % of warp samples wait for" in each.evidence.basis
        assert said == (each not in silent)
        assert each.evidence.values["samples_at_line_pct"] == 100 * (each.subject.line == 55)


def test_a_warp_that_exits_is_sampled_behind_the_exit(kernel, tmp_path):
    end = len(kernel.sass.instructions)
    for content in files(kernel, {end: {"drain": 5}}):
        (place,) = joined(kernel, tmp_path, content).warp_stalls.places
        assert place.opcodes == ("EXIT",)


def test_code_without_lines_has_a_row_per_instruction(kernel, load_and_use, tmp_path):
    load, use = load_and_use
    bare = tuple(replace(i, source=None, inlined=()) for i in kernel.sass.instructions)
    without = replace(kernel, sass=replace(kernel.sass, instructions=bare))
    content = files(kernel, {use: {"long_scoreboard": 2}, 3: {"wait": 1}})[0]
    places = joined(without, tmp_path, content).warp_stalls.places
    assert [each.place.offset for each in places] == [16 * use, 48]
    assert 16 * load in [each.place.offset for each in places[0].waits_for]


def test_samples_of_other_code_are_refused(kernel, tmp_path):
    cubin, function, _ = assembled("gelu-3.7.1-sm90")
    stalls = {3: {"wait": 5}}
    longer = source_page(kernel.name, [*sass_of(kernel), "FADD R1, R1, R2"], stalls)
    other = ncu_report(function.name, cubin, [{0: {"wait": 2}}])
    for content, said in (
        (longer, "are of other code than was compiled here; compile what ran"),
        (other, f"has no samples of these kernels; it has samples of {function.name}"),
    ):
        with pytest.raises(InputError, match=said):
            joined(kernel, tmp_path, content)
    notes: list[str] = []
    path = tmp_path / "samples.ncu-rep"
    path.write_bytes(other)
    gelu = inspect(a_compiled(name=function.name, arch="sm_90a", cubin=cubin))
    assert with_samples([kernel, gelu], read_samples(path), path, notes.append)[0] is kernel
    assert notes == [f"samples.ncu-rep has no samples of {kernel.short_name} as compiled here"]


def test_the_command_weighs_findings_by_the_samples(tmp_path, capsys):
    """A report is also its own target."""
    need("ptxas", "nvdisasm")
    target, path = DATA / "gelu-nvrtc-12.9-sm90.ptx", tmp_path / "k.ncu-rep"
    (scalar,) = inspect_ptx(target, kernel="gelu_scalar").kernels
    boards = Scoreboards.of(scalar.sass, machine_code(scalar.compiled.cubin, scalar.name))
    code = scalar.sass.instructions
    use = next(
        at for at in range(len(code)) if any(is_load(code[each]) for each in boards.awaited(at))
    )
    stalls = {16 * use: {"long_scoreboard": 8}, 0: {"wait": 2}}
    path.write_bytes(ncu_report(scalar.name, scalar.compiled.cubin, [stalls]))

    options = [
        "--kernel",
        "gelu_scalar",
        "--samples",
        str(path),
        "--json",
        str(tmp_path / "k.json"),
    ]
    assert run(["ptx", str(target), *options]) == 0
    assert "long scoreboard 80.0 %" in capsys.readouterr().out
    (kernel,) = json.loads((tmp_path / "k.json").read_text())["kernels"]
    assert kernel["warp_stalls"]["places"][0]["waits_for"][0]["reason"] == "long_scoreboard"
    evidence = [finding["evidence"] for finding in kernel["findings"]]
    assert [each["values"].get("samples_waiting_pct") for each in evidence] == [80.0]
    assert "80.0 % of warp samples wait for" in evidence[0]["basis"]

    assert run(["ptx", str(path)]) == 0
    assert "long scoreboard 80.0 %" in capsys.readouterr().out


def is_load(instruction):
    access = access_of(instruction)
    return bool(access and access.kind == "load" and access.space == "global")


def test_the_command_refuses_samples_with_a_comparison(capsys):
    for option in (["--num-warps", "4", "8"], ["--configs"]):
        assert run(["ptx", "examples/gelu.py", *option, "--samples", "x.csv"]) == 2
        assert "--samples" in capsys.readouterr().err


PRODUCT = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry product(.param .u64 map, .param .u64 out)
{
.reg .pred %p<2>; .reg .f32 %f<5>; .reg .b64 %rd<5>; .reg .b32 %r<5>;
.shared .align 1024 .b8 tile[4096];
.shared .align 8 .b8 barriers[16];
ld.param.u64 %rd1, [map];
ld.param.u64 %rd2, [out];
mov.u32 %r1, tile;
mov.u32 %r2, barriers;
mov.u32 %r4, 0;
.loc 1 1 1
mbarrier.init.shared.b64 [%r2], 1;
mbarrier.init.shared.b64 [%r2+8], 1;
.loc 1 2 1
mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 2048;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
 [%r1], [%rd1, {%r4, %r4}], [%r2];
.loc 1 3 1
add.u32 %r3, %r2, 8;
add.u32 %r1, %r1, 2048;
mbarrier.arrive.expect_tx.shared.b64 _, [%r2+8], 2048;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
 [%r1], [%rd1, {%r4, %r4}], [%r3];
.loc 1 4 1
FIRST: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
@!%p1 bra FIRST;
.loc 1 5 1
SECOND: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2+8], 0;
@!%p1 bra SECOND;
.loc 1 6 1
mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
mov.u64 %rd3, 0x4000004000010000;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd3, %rd3, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
.loc 1 7 1
wgmma.wait_group.sync.aligned 0;
st.global.v4.f32 [%rd2], {%f1, %f2, %f3, %f4};
ret;
}
.file 1 "k.py"
"""


def test_waits_for_copies_and_products_name_them(tmp_path):
    """A barrier's copies are those whose bytes it was told; a warp group waits for its products."""
    need("ptxas", "nvdisasm")
    cubin = assemble(PRODUCT).cubin
    kernel = inspect(a_compiled(name="product", arch="sm_90a", cubin=cubin))
    code = kernel.sass.instructions
    tests = [at for at, i in enumerate(code) if i.opcode.startswith("SYNCS.PHASECHK")]
    waits = [at for at, i in enumerate(code) if i.opcode.startswith("WARPGROUP.DEPBAR")]
    # Those in line; the others poll.
    stalls = {at + 1: {"long_scoreboard": 10} for at in tests[:2]} | {waits[0]: {"barrier": 30}}
    content = ncu_report("product", cubin, [{16 * at: each for at, each in stalls.items()}])
    found = joined(kernel, tmp_path, content).warp_stalls
    places = sorted(found.places, key=lambda each: each.place.source.line)
    waited = [[(e.place.source.line, *e.opcodes) for e in place.waits_for] for place in places]
    assert waited[:2] == [[(2, "UTMALDG.2D")], [(3, "UTMALDG.2D")]]
    assert [opcode for _, opcode in waited[2]] == ["HGMMA.64x8x16.F32"]

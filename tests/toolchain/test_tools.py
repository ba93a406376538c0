"""Finding NVIDIA's tools, and assembling PTX: remarks, spill counts and errors of ptxas."""

import re
import sys
from pathlib import Path

import pytest

from tests.inspect.rules.written_ptx import (
    ARRAY,
    COPY,
    SERIALISED,
    SPILLING,
    kernel,
    need,
    spills_counted,
)
from traceview.base.errors import ToolNotFoundError, TraceviewError
from traceview.kernels.ptx.cubin import arch_of
from traceview.kernels.toolchain import tools
from traceview.kernels.toolchain.listings import arch_for, assemble


@pytest.fixture
def ptxas() -> None:
    need("ptxas")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which no tool is installed, with an empty folder on PATH."""
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(tools, "TOOLKITS", tmp_path / "toolkits")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("PTXAS", "NVDISASM", "NVCC"):
        monkeypatch.delenv(f"TRACEVIEW_{name}", raising=False)
    return tmp_path


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_missing_tool_says_how_to_get_it(bare):
    with pytest.raises(
        ToolNotFoundError, match=r"ptxas was not found .*pip install triton.*TRACEVIEW_P"
    ):
        tools.find("ptxas")


def test_order_of_preference(bare):
    on_path = script(bare / "bin" / "nvcc", "")
    old = script(bare / "toolkits" / "cuda-12.9" / "bin" / "nvcc", "")
    new = script(bare / "toolkits" / "cuda-12.10" / "bin" / "nvcc", "")
    wheel = script(bare / "packages" / "nvidia" / "cu13" / "bin" / "nvcc", "")
    assert tools.find("nvcc") == [on_path, new, old, wheel]


def test_an_environment_variable_excludes_all_other_paths(bare, monkeypatch):
    script(bare / "bin" / "ptxas", "")
    chosen = script(bare / "chosen", "")
    monkeypatch.setenv("TRACEVIEW_PTXAS", str(chosen))
    assert tools.find("ptxas") == [chosen]
    monkeypatch.setenv("TRACEVIEW_PTXAS", str(bare / "gone"))
    with pytest.raises(ToolNotFoundError, match=r"\$TRACEVIEW_PTXAS is .*gone, which is not"):
        tools.find("ptxas")


def test_the_newest_release_comes_first(bare):
    old = script(bare / "bin" / "nvdisasm", "echo release 12.9, V12.9.1")
    new = script(bare / "packages" / "nvidia" / "cu13" / "bin" / "nvdisasm", "echo release 13.1,")
    mute = script(bare / "packages" / "nvidia" / "x" / "bin" / "nvdisasm", "exit 1")
    assert tools.find_newest("nvdisasm") == [new, old, mute]


def test_triton_is_not_imported_to_find_its_tools():
    pytest.importorskip("triton")
    loaded = "triton" in sys.modules
    paths = tools.find("ptxas", "sm_90")
    assert paths[0].parts[-4:] == ("backends", "nvidia", "bin", "ptxas")
    assert tools.find("ptxas", "sm_100a")[0].name == "ptxas-blackwell"
    assert ("triton" in sys.modules) == loaded


@pytest.mark.parametrize(
    ("target", "arch", "chosen"),
    [
        ("sm_90a", None, "sm_90a"),
        ("sm_90a", "sm_90", "sm_90a"),
        ("sm_90", "sm_90a", "sm_90a"),
        ("sm_80", "sm_90", "sm_90"),
        ("sm_100f", "sm_103", "sm_103"),
    ],
)
def test_the_target_directive_decides_the_suffix(target, arch, chosen):
    assert arch_for(kernel("", target=target), arch) == chosen


@pytest.mark.parametrize(("target", "arch"), [("sm_90", "sm_80"), ("sm_90a", "sm_100")])
def test_code_that_cannot_run_there_is_an_error(target, arch):
    with pytest.raises(TraceviewError, match=f"is for {target} and cannot run on {arch}"):
        arch_for(kernel("", target=target), arch)


def test_neither_target_directive_nor_arch():
    with pytest.raises(TraceviewError, match=r"has no \.target directive; pass --arch"):
        arch_for("")


@pytest.mark.usefixtures("ptxas")
class TestAssemble:
    def test_a_cubin_for_the_requested_architecture(self):
        done = assemble(COPY, "sm_90")
        assert (done.arch, arch_of(done.cubin)) == ("sm_90", "sm_90")
        assert (done.notes, spills_counted(done)) == ((), [(0, 0)])

    def test_local_arrays_do_not_count_as_spills(self):
        assert spills_counted(assemble(ARRAY)) == [(0, 0)]
        ((stored, loaded),) = spills_counted(assemble(SPILLING))
        assert stored == loaded > 100

    def test_the_remark_on_serialised_wgmma(self):
        (note,) = assemble(SERIALISED).notes
        assert "wgmma.mma_async instructions are serialized" in note
        assert "'serial'" in note

    def test_the_first_error_with_its_line(self):
        wrong = COPY.replace("ld.global.v4", "ld.globe.v4")
        line = wrong[: wrong.index("ld.globe")].count("\n") + 1
        with pytest.raises(
            TraceviewError, match=rf"PTX for sm_80: line {line}: .*'\.globe'"
        ) as caught:
            assemble(wrong)
        assert "\n" not in str(caught.value)
        assert "/tmp" not in str(caught.value)

    @pytest.mark.parametrize("text", ["", "hello", "\0" * 100, COPY[:300]])
    def test_text_that_is_not_ptx(self, text):
        with pytest.raises(TraceviewError, match="ptxas rejects the PTX for sm_90: line"):
            assemble(text, "sm_90")

    def test_a_ptx_version_newer_than_every_installed_ptxas(self):
        newer = COPY.replace(".version 8.0", ".version 99.0")
        assembled = assemble(newer)
        assert arch_of(assembled.cubin) == assembled.arch
        assert re.match(
            r"assembled as PTX ISA \d+\.\d+, the newest .* it is 99\.0", assembled.notes[0]
        )

    def test_an_instruction_that_no_installed_ptxas_knows(self):
        newer = COPY.replace(".version 8.0", ".version 99.0").replace("ret;", "newest.b32 ; ret;")
        with pytest.raises(TraceviewError, match=r"Unsupported \.version 99\.0.*newer CUDA"):
            assemble(newer)

    def test_zeros_behind_the_text_as_warp_writes_them(self):
        assert assemble(COPY + "\0").cubin == assemble(COPY).cubin


def test_the_next_ptxas_is_tried_if_one_is_too_old(bare):
    refusing = 'echo "ptxas in.ptx, line 1; fatal   : Unsupported .version 8.0" >&2; exit 255'
    script(bare / "bin" / "ptxas", refusing)
    writing = 'while [ "$1" != -o ]; do shift; done; echo -n cubin > "$2"'
    script(bare / "toolkits" / "cuda" / "bin" / "ptxas", writing)
    assert assemble(COPY).cubin == b"cubin"


def test_no_other_ptxas_is_tried_if_the_code_is_wrong(bare):
    script(bare / "bin" / "ptxas", 'echo "ptxas in.ptx, line 7; error   : No." >&2; exit 255')
    script(bare / "toolkits" / "cuda" / "bin" / "ptxas", "touch called; exit 0")
    with pytest.raises(TraceviewError, match=r"line 7: No\.$"):
        assemble(COPY)


def test_a_tool_that_crashes(bare):
    script(bare / "bin" / "ptxas", "kill -SEGV $$")
    with pytest.raises(TraceviewError, match=r"it crashed \(signal 11\)"):
        assemble(COPY)


def test_a_tool_that_does_not_end(bare):
    sleeper = script(bare / "bin" / "ptxas", "exec /bin/sleep 60")
    with pytest.raises(TraceviewError, match=r"ptxas did not end within 0\.2 s"):
        tools.run(sleeper, lambda source, target: (), b"", ".ptx", timeout_s=0.2)


def test_a_tool_that_cannot_run(bare):
    broken = bare / "ptxas"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    with pytest.raises(ToolNotFoundError, match="cannot run"):
        tools.run(broken, lambda source, target: (), b"", ".ptx")

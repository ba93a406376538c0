"""`traceview record` puts the kernels of the program into the trace, under a real nsys."""

import os
import sys

import pytest

import traceview as package
from tests.recorders import fake_nsys
from tests.recorders.fake_nsys import leftovers, traceview
from tests.recorders.recorded_programs import KERNEL, LINE_OF_DEF
from traceview.kernels.ptx import cubin as cubin_file
from traceview.kernels.toolchain.listings import disassemble
from traceview.traces.recorders import options
from traceview.traces.recorders.options import RecordOptions
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.added_tables import KERNELS_TABLE, unpacked

pytest.importorskip("triton")

SECRET = "hunter2-secret"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home folder that is known by the variable alone."""
    return tmp_path_factory.mktemp("people") / "alice"


@pytest.fixture(scope="module")
def environment(nsys, home):
    folder = home / SECRET
    folder.mkdir(parents=True)
    return {
        **os.environ,
        "TRACEVIEW_NSYS": str(nsys),
        "TRITON_CACHE_DIR": str(home / "triton"),
        "HOME": str(home),
        "SECRET_TOKEN": SECRET,
    }


@pytest.fixture(scope="module")
def recorded(environment, home):
    """A program in a folder with a secret name, in a home: the trace and what was said."""
    folder = home / SECRET
    (folder / "train.py").write_text(KERNEL + "compiled()\ncompiled(8)\ncompiled(4, (0, 1))\n")
    words = ("record", "--backtrace", "none", "train.py")
    done = traceview(*words, cwd=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    assert leftovers(folder) == []
    return folder / "train.sqlite", done


@pytest.mark.programs
def test_every_variant_is_there_once(recorded):
    table = load(recorded[0]).kernel_code
    assert table.cells("name") == ["scale"] * 3
    assert sorted(table.cells("num_warps")) == [4, 4, 8]
    assert set(table.cells("source_line")) == {LINE_OF_DEF}
    assert fake_nsys.warnings(recorded[1].stderr) == []


@pytest.mark.programs
def test_nothing_tells_of_the_user_and_the_code_is_sound(recorded, home):
    table = load(recorded[0]).kernel_code
    content = recorded[0].read_bytes()
    for row in table.rows():
        ptx, cubin = unpacked(row["ptx"]), unpacked(row["cubin"])
        for private in (str(home).encode(), SECRET.encode()):
            assert private not in ptx
            assert private not in cubin
            assert private not in repr({**row, "ptx": None, "cubin": None}).encode()
            assert private not in content
        assert cubin_file.resources(cubin)["scale"].registers > 0
        files = {i.source.file for i in disassemble(cubin).functions[0].instructions if i.source}
        assert files == {f"~/{'_' * len(SECRET)}/train.py"}


@pytest.mark.programs
def test_the_trace_is_a_target(recorded):
    said = []
    report = package.inspect_ptx(recorded[0], note=said.append)
    widths = [
        sorted({a.width_bits for a in kernel.accesses if a.level == "ptx"})
        for kernel in report.kernels
    ]
    assert sorted(widths) == [[32], [128], [128]]
    findings = [finding for kernel in report.kernels for finding in kernel.findings]
    narrow = next(f for f in findings if "n is not known to be divisible by 16" in f.message)
    assert "Pad or align n" in narrow.action
    assert not any(k.differences for k in report.kernels)
    assert said == ["no launch of these kernels is in the trace"]


@pytest.mark.programs
def test_scrubbing_again_changes_nothing(recorded, tmp_path):
    once, twice = tmp_path / "once.sqlite", tmp_path / "twice.sqlite"
    package.scrub(recorded[0], once)
    package.scrub(once, twice)
    before, after = (load(path).kernel_code for path in (once, twice))
    assert list(after.rows()) == list(before.rows())


@pytest.mark.programs
def test_the_environment_kept_keeps_the_code_as_it_was(environment, home):
    folder = home / SECRET
    (folder / "keep.py").write_text(KERNEL + "compiled()")
    words = ("record", "--backtrace", "none", "--keep-env", "keep.py")
    done = traceview(*words, cwd=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    (ptx,) = load(folder / "keep.sqlite").kernel_code["ptx"]
    assert str(folder).encode() in unpacked(ptx)
    # The same, given away by the command for it.
    package.scrub(folder / "keep.sqlite", folder / "clean.sqlite")
    table = load(folder / "clean.sqlite").kernel_code
    assert str(home).encode() not in unpacked(table["ptx"][0])
    assert str(home).encode() not in unpacked(table["cubin"][0])


@pytest.mark.programs
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--no-kernels", "train.py"), False),
        ((sys.executable, "-I", "train.py"), True),
        (("sh", "-c", "exit 0"), False),
    ],
)
def test_without_gathering_there_is_no_table(environment, tmp_path, words, said):
    (tmp_path / "train.py").write_text(KERNEL + "compiled()")
    line = ("record", "--backtrace", "none", "-o", "t.sqlite", *words)
    done = fake_nsys.recording(*line, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "kernel_code" not in load(tmp_path / "t.sqlite").tables
    assert ("kernels were not recorded" in done.stderr) == said
    shown = traceview("ptx", "t.sqlite", cwd=tmp_path, environment=environment)
    assert shown.returncode == 1
    assert "t.sqlite holds no kernels, only " in shown.stderr


@pytest.mark.programs
def test_a_program_without_triton_has_an_empty_table(environment, tmp_path):
    (tmp_path / "train.py").write_text("print()")
    words = ("record", "--backtrace", "none", "train.py")
    done = traceview(*words, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert len(load(tmp_path / "train.sqlite").kernel_code) == 0


def test_what_the_hooks_noted_is_said(tmp_path):
    (tmp_path / "started").touch()
    (tmp_path / "notes.txt").write_text("".join(f"kernels: {n}\n" for n in (1, 1, 2, 3, 4, 5)))
    said = options.remarks(RecordOptions(), tmp_path, [sys.executable])
    assert said == ["kernels: 1", "kernels: 2", "kernels: 3", "2 more warnings of this kind"]


def test_nothing_is_added_where_nothing_is_wanted(tmp_path):
    none = RecordOptions(kernels=False, sync_sites=False, annotate="off", python_samples=False)
    assert options.environment(none, tmp_path / "g") == {}
    assert not (tmp_path / "g").exists()


def test_the_table_is_named_as_the_contract_has_it():
    assert KERNELS_TABLE == "TRACEVIEW_KERNELS"

"""What a cubin tells of itself equals what ptxas and cuobjdump say of it."""

import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inspect.rules.written_ptx import (
    ARCHES,
    BOTH,
    COPY,
    KERNELS,
    SHARED,
    SPILLING,
    kernel,
    need,
    spills_counted,
)
from traceview.base.errors import ToolNotFoundError, TraceFormatError
from traceview.kernels.ptx.cubin import arch_of, kernels, resources
from traceview.kernels.ptx.model import Resources
from traceview.kernels.toolchain import tools
from traceview.kernels.toolchain.listings import assemble

pytest.importorskip("elftools", reason="pyelftools is not installed")

SAID_BY_PTXAS = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<spills>\d+) bytes spill stores.*?"
    r"Used (?P<registers>\d+) registers, used (?P<barriers>\d+) barriers"
    r"(?:, \d+ bytes cumulative stack size)?(?:, (?P<shared>\d+) bytes smem)?",
    re.DOTALL,
)
SAID_BY_CUOBJDUMP = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")
every_arch = pytest.mark.parametrize("arch", ARCHES)
every_kernel = pytest.mark.parametrize("name", KERNELS)


@pytest.fixture(autouse=True)
def _ptxas() -> None:
    need("ptxas")


def ptxas_of(ptx: str, arch: str, path: Path) -> tuple[bytes, str]:
    """A cubin and the log of the `ptxas -v` that made it."""
    result = tools.run(
        tools.find("ptxas", arch)[0],
        lambda source, cubin: ("-v", "-arch", arch, source, "-o", cubin),
        ptx.encode(),
        ".ptx",
    )
    assert result.written, result.err
    return result.written, result.err


@every_arch
@every_kernel
def test_it_equals_ptxas(name, arch, tmp_path):
    cubin, said = ptxas_of(KERNELS[name], arch, tmp_path)
    told = {k: int(v or 0) for k, v in SAID_BY_PTXAS.search(said).groupdict().items()}
    got = resources(cubin)["k"]
    assert told == {
        "stack": got.stack_bytes,
        "spills": got.spill_bytes,
        "registers": got.registers,
        "barriers": got.barriers,
        "shared": got.static_shared_bytes,
    }


@every_arch
@every_kernel
def test_it_equals_cuobjdump(name, arch, tmp_path):
    need("cuobjdump")
    path = tmp_path / "k.cubin"
    path.write_bytes(assemble(KERNELS[name], arch).cubin)
    tool = tools.find_newest("cuobjdump")[0]
    said = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True)
    registers, stack, shared = map(int, SAID_BY_CUOBJDUMP.search(said.stdout).groups())
    got = resources(path.read_bytes())["k"]
    assert (got.registers, got.stack_bytes) == (registers, stack)
    # From sm_90 on cuobjdump counts what the driver reserves, if there is shared memory at all.
    assert shared - got.static_shared_bytes in ({0} if arch == "sm_80" else {0, 1024})


@every_arch
def test_a_spilling_kernel(arch):
    got = resources(assemble(SPILLING, arch).cubin)["k"]
    assert got.registers <= 32
    assert got.spill_bytes > 200


def test_spills_beside_an_array_on_the_stack():
    got = resources(assemble(BOTH, "sm_90").cubin)["k"]
    assert got.stack_bytes >= got.spill_bytes + 128
    assert got.spill_bytes > 200


@pytest.mark.parametrize(("name", "threads"), [("copy", None), ("bounded", 192), ("required", 128)])
def test_the_launch_bounds(name, threads):
    assert resources(assemble(KERNELS[name]).cubin)["k"].max_threads == threads


def test_static_shared_memory_and_barriers():
    for arch in ARCHES:
        got = resources(assemble(SHARED, arch).cubin)["k"]
        assert (got.static_shared_bytes, got.barriers) == (1536, 6)


def test_kernels_and_not_functions():
    head = """.func helper(.param .u64 p)
    { .reg .b64 %rd1; ld.param.u64 %rd1, [p]; st.global.u64 [%rd1], %rd1; ret; }"""
    one = kernel("call helper, (%rd1);", name="one", head=head)
    two = one[one.index(".visible") :].replace("one(", "two(")
    assert sorted(kernels(assemble(one + two).cubin)) == ["one", "two"]


@pytest.mark.parametrize(
    ("target", "arch"),
    [
        ("sm_75", "sm_75"),
        ("sm_80", "sm_89"),
        ("sm_90a", "sm_90a"),
        ("sm_90", "sm_100"),
        ("sm_90", "sm_120"),
    ],
)
def test_the_architecture(target, arch):
    assert arch_of(assemble(COPY.replace("sm_80", target), arch).cubin) == arch


def test_an_architecture_with_a_suffix_of_its_own():
    assert arch_of(assemble(COPY.replace("sm_80", "sm_90"), "sm_100a").cubin) == "sm_100a"


def test_an_older_ptxas_tells_the_same():
    found = {tools.release_of(path): path for path in tools.find("ptxas")}
    if len(found) < 2:
        pytest.skip("only one release of ptxas here")
    for ptx in KERNELS.values():
        spills = set()
        for path in found.values():
            done = assemble(ptx, "sm_90", ptxas=path)
            assert arch_of(done.cubin) == "sm_90"
            ((stored, _),) = spills_counted(done)
            assert resources(done.cubin)["k"].spill_bytes == stored
            spills.add(bool(stored))
        assert len(spills) == 1


@pytest.mark.parametrize(
    "raw", [b"", b"\x7fELF", b"not a cubin", b"\x7fELF" + bytes(60), b"\0" * 500]
)
def test_what_is_no_cubin(raw):
    with pytest.raises(TraceFormatError, match=r"not a cubin|damaged") as caught:
        resources(raw)
    assert "\n" not in str(caught.value)


def test_a_program_of_this_machine_is_no_cubin():
    raw = Path(sys.executable).read_bytes()
    if not raw.startswith(b"\x7fELF"):
        pytest.skip("programs are not ELF files here")
    with pytest.raises(TraceFormatError, match="not a cubin but an ELF file for EM_"):
        resources(raw)


def test_half_a_cubin_is_damaged():
    cubin = assemble(SPILLING).cubin
    for end in range(0, len(cubin) - 1, 97):
        with pytest.raises(TraceFormatError):
            resources(cubin[:end])


def test_flipped_bytes_never_escape_as_another_error():
    cubin, draw = assemble(SPILLING).cubin, random.Random(1)
    outcomes = set()
    for _ in range(300):
        raw = bytearray(cubin)
        for _ in range(draw.randint(1, 40)):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        try:
            outcomes.add(type(resources(bytes(raw))))
        except TraceFormatError:
            outcomes.add(TraceFormatError)
    assert outcomes == {dict, TraceFormatError}


def test_an_old_cubin_with_a_stack_does_not_guess_its_spills():
    """Without marks, and by a toolkit that made none, what is on the stack is not known."""
    cubin = assemble(KERNELS["array"]).cubin
    toolkit = struct.Struct("<BBHI")
    at = next(
        m.start()
        for m in re.finditer(re.escape(b"\x04\x37\x04\x00"), cubin)
        if 100 < toolkit.unpack_from(cubin, m.start())[3] < 200
    )
    older = cubin[: at + 4] + struct.pack("<I", 124) + cubin[at + 8 :]
    assert resources(cubin)["k"].spill_bytes == 0
    got = resources(older)["k"]
    assert (got.spill_bytes, got.stack_bytes) == (None, 128)


def test_without_pyelftools(monkeypatch):
    monkeypatch.setitem(sys.modules, "elftools.common.exceptions", None)
    with pytest.raises(
        ToolNotFoundError, match=r"needs pyelftools; .*pip install 'traceview\[ptx\]'"
    ):
        resources(b"\x7fELF")


def test_no_kernel_is_no_resources():
    head = ".visible .global .align 4 .b32 x;"
    bare = kernel("").split(".visible .entry")[0] + head
    assert resources(assemble(bare, "sm_90").cubin) == {}


def test_the_whole_of_one():
    assert resources(assemble(SHARED, "sm_90").cubin) == {
        "k": Resources(
            registers=resources(assemble(SHARED, "sm_90").cubin)["k"].registers,
            stack_bytes=0,
            spill_bytes=0,
            static_shared_bytes=1536,
            barriers=6,
            max_threads=None,
        )
    }

"""`traceview ptx` on what is broken or means harm: one clear line, exit 1, nothing written."""

import contextlib
import importlib.util
import io
import os
import random
import re
import struct
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import traceview
from tests.examples import examples
from tests.inspect.rules.written_ptx import need
from tests.places import PTX_FILES
from traceview import cli
from traceview.base.errors import TraceviewError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.toolchain.listings import assemble

pytestmark = pytest.mark.programs

GELU = PTX_FILES / "gelu-3.7.1-sm90.ptx"
TIMEOUT = ("--timeout", "5")
ESCAPE = "\x1b"
SECTION_SIZE = 32
MEGABYTE = 1_000_000
SIZE = examples(4) * MEGABYTE

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="runs scripts beside Triton"
)
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="uses PyTorch")

LAUNCH = """\
import os, torch, triton, triton.language as tl

@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)

x = torch.empty(4096, device="cuda")
fill[(4,)](x, 4096, BLOCK=1024)
"""


def run_here(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run `traceview ptx` in this process; a script runs in a process of its own in any case."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), redirect_stdout(out), redirect_stderr(err):
        status = cli.run(["ptx", *arguments])
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def line_of(folder: Path, *arguments: str) -> str:
    """What it says when it cannot: one line on stderr, the last, with no traceback."""
    before = sorted(folder.rglob("*"))
    done = run_here(folder, *arguments)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert ESCAPE not in done.stderr
    assert sorted(folder.rglob("*")) == before
    *_, line = done.stderr.splitlines()
    assert line.startswith("traceview: error: ")
    return line.removeprefix("traceview: error: ")


@pytest.fixture(scope="module")
def cubin() -> bytes:
    need("ptxas")
    pytest.importorskip("elftools", reason="pyelftools is not installed")
    return assemble(GELU.read_text(), "sm_90").cubin


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "line 1, column 1: the text is empty"),
        (bytes(5000), "the text is empty"),
        (b"\x8d\x43\x15\x00" * 1000, "not PTX text, which begins with .version"),
        (GELU.read_text().encode("utf-16"), "not PTX text"),
        (GELU.read_bytes()[: len(GELU.read_bytes()) // 2], "the file may be truncated"),
    ],
    ids=["empty", "zeros", "binary", "utf-16", "half"],
)
def test_what_is_no_ptx(tmp_path, raw, words):
    (tmp_path / "k.ptx").write_bytes(raw)
    said = line_of(tmp_path, "k.ptx")
    assert said.startswith("k.ptx, line ")
    assert words in said


def test_ptx_that_ends_anywhere(tmp_path):
    from traceview.base.errors import TraceviewError
    from traceview.kernels.inspect.targets import kernels_of

    text, target = GELU.read_bytes(), tmp_path / "k.ptx"
    for end in range(0, len(text), 499):
        target.write_bytes(text[:end])
        with pytest.raises(TraceviewError) as caught:
            kernels_of(str(target), CompileOptions())
        assert "\n" not in str(caught.value)


def test_files_under_a_wrong_name(tmp_path, cubin):
    (tmp_path / "k.ptx").write_bytes(cubin)
    assert "k.ptx is not PTX but a cubin; rename it" in line_of(tmp_path, "k.ptx")
    (tmp_path / "k.ptx").write_bytes(b"\x7fELF" + cubin[4:18] + b"\x3e\0" + cubin[20:])
    assert "k.ptx is not PTX but another kind of binary" in line_of(tmp_path, "k.ptx")
    (tmp_path / "k.cubin").write_bytes(GELU.read_bytes())
    assert line_of(tmp_path, "k.cubin").startswith("k.cubin: not a cubin: it begins with")
    (tmp_path / "k.txt").write_text("hello")
    assert "k.txt is not a supported target" in line_of(tmp_path, "k.txt")


def sized(cubin: bytes, size: int, kind: int | None = None) -> bytes:
    """The cubin with this size in the headers of all sections, or of those of a kind."""
    raw = bytearray(cubin)
    (start,) = struct.unpack_from("<Q", raw, 40)
    each, count = struct.unpack_from("<HH", raw, 58)
    for header in range(start, start + each * count, each):
        if kind in (None, struct.unpack_from("<I", raw, header + 4)[0]):
            struct.pack_into("<Q", raw, header + SECTION_SIZE, size)
    return bytes(raw)


@pytest.mark.parametrize(
    "harm",
    [
        lambda cubin: b"",
        lambda cubin: cubin[: len(cubin) // 2],
        lambda cubin: sized(cubin, 2**62),
        lambda cubin: sized(cubin, 2**62, kind=8),
        lambda cubin: cubin[:40] + struct.pack("<Q", 2**63) + cubin[48:],
        lambda cubin: cubin[:60] + struct.pack("<H", 65_535) + cubin[62:],
    ],
    ids=["empty", "half", "sizes", "shared memory", "headers elsewhere", "many headers"],
)
def test_a_damaged_cubin(tmp_path, cubin, harm):
    (tmp_path / "k.cubin").write_bytes(harm(cubin))
    assert line_of(tmp_path, "k.cubin").startswith("k.cubin: ")


SCRIPTS = {
    "raises": ("raise ValueError('no \\x1b[31m data\\n')", "raised ValueError at line 1: no "),
    "exits": ("import sys; sys.exit(3)", "exited with 3"),
    "is interrupted": ("raise KeyboardInterrupt", "raised KeyboardInterrupt at line 1"),
    "recurses": ("def f(): f()\nf()", "raised RecursionError at line 1"),
    "lacks a package": ("import no_such_thing", "imports no_such_thing, which is not installed"),
    "forks": ("import os\nif os.fork(): os.wait()", "neither launches nor defines"),
    "closes its output": ("import os\nos.close(1); print('x', flush=True)", "raised OSError"),
    "has no output": ("import sys\nsys.stdout = sys.stderr = None", "neither launches"),
    "leaves at once": ("import os; os._exit(0)", "exited before it compiled any kernel"),
    "leaves badly": ("import os; os._exit(9)", "exited with status 9 before any kernel"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL (possibly out of"),
    "crashes": ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV before any"),
    "eats memory": ("x = bytearray(1 << 60)", "raised MemoryError at line 1"),
    "is no text": ("# caf\udce9\nx = '\udce9'", "not valid Python: "),
    "nests": ("x = " + "(" * 5000 + ")" * 5000, "not valid Python: too many nested"),
}


@needs_triton
@pytest.mark.parametrize("case", SCRIPTS)
def test_a_script_that(tmp_path, case):
    text, words = SCRIPTS[case]
    (tmp_path / "script.py").write_text(text, errors="surrogateescape")
    started = time.monotonic()
    assert words in line_of(tmp_path, "script.py", "--timeout", "60")
    # It ended by itself: the limit had no part in it.
    assert time.monotonic() - started < 60


@needs_triton
def test_a_script_that_prints_a_hundred_megabytes(tmp_path):
    (tmp_path / "script.py").write_text(
        "import sys\nfor _ in range(100): sys.stdout.write('x' * 999_999 + '\\n')\n"
    )
    with (tmp_path / "err").open("wb") as sink:
        done = subprocess.run(
            [sys.executable, "-m", "traceview", "ptx", "script.py"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=sink,
            timeout=100,
        )
    assert (done.returncode, done.stdout) == (1, b"")
    said = (tmp_path / "err").read_bytes()
    assert len(said) > 100 * MEGABYTE - 1000
    assert said.splitlines()[-1].startswith(b"traceview: error: script.py neither launches")


@pytest.mark.slow
@needs_triton
def test_a_script_that_loops_for_ever_and_its_children(tmp_path):
    (tmp_path / "script.py").write_text(
        "import os, pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        f"pids = pathlib.Path({str(tmp_path.parent / 'pids')!r})\n"
        "pids.write_text(f'{os.getpid()} {child.pid}')\n"
        "while True: time.sleep(0.01)\n"
    )
    said = line_of(tmp_path, "script.py", *TIMEOUT)
    assert said.startswith("script.py did not end within 5 s and was stopped")
    assert said.endswith("allow more time with --timeout")
    pids = (tmp_path.parent / "pids").read_text().split()
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))


def is_alive(pid: str) -> bool:
    """Whether a process runs; one that waits to be buried does not."""
    try:
        status = Path("/proc", pid, "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@needs_triton
@needs_torch
def test_what_a_fork_launches_is_not_counted_twice(tmp_path):
    script = (
        LAUNCH + "pid = os.fork()\nfill[(4,)](x, 4096, BLOCK=1024)\nif pid: os.waitpid(pid, 0)\n"
    )
    (tmp_path / "script.py").write_text(script)
    done = run_here(tmp_path, "script.py")
    assert done.returncode == 0, done.stderr
    assert "as launched · 2 launches" in done.stdout


def test_names_that_would_act_on_a_terminal(tmp_path):
    text = (
        GELU.read_text()
        .replace("gelu", "gelu\x1b]0;owned\x07")
        .replace("kernels.py", "k\x1b[2J.py")
    )
    (tmp_path / "k.ptx").write_text(text)
    for view in ((), ("--ptx",), ("--source",), ("--json",)):
        done = run_here(tmp_path, "k.ptx", *view)
        assert "Traceback" not in done.stderr
        assert not {ESCAPE, "\x07"} & set(done.stdout + done.stderr)


def test_folders_that_hold_something_else(tmp_path):
    (tmp_path / "other" / "below").mkdir(parents=True)
    (tmp_path / "other" / "a.txt").write_text("hello")
    (tmp_path / "named.ptx").mkdir()
    for name in ("other", "named.ptx"):
        assert f"{name} holds no CUDA kernel compiled by Triton" in line_of(tmp_path, name)
    (tmp_path / "named.py").mkdir()
    assert "named.py" in line_of(tmp_path, "named.py")
    assert "gone.ptx does not exist" in line_of(tmp_path, "gone.ptx")


def test_without_permission(tmp_path):
    (tmp_path / "cache").mkdir(mode=0)
    if os.access(tmp_path / "cache", os.R_OK):
        pytest.skip("root may read everything; the next test stands in")
    assert "cache" in line_of(tmp_path, "cache")
    (tmp_path / "cache").rmdir()
    for name in ("k.ptx", "k.cubin", "k.py", "k.cu"):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(0)
        assert "cannot read" in line_of(tmp_path, name)


def test_a_file_that_the_system_refuses_to_read(tmp_path, monkeypatch):
    """As the test above, for those who run as root."""
    from traceview.base.errors import InputError
    from traceview.kernels.inspect.targets import kernels_of

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    for name in ("k.ptx", "k.cubin"):
        (tmp_path / name).write_text("x")
        with pytest.raises(InputError, match=r"cannot read .*: Permission denied"):
            kernels_of(str(tmp_path / name), CompileOptions())


@pytest.mark.slow
def test_megabytes_of_ptx(tmp_path):
    """One kernel whose arithmetic is repeated: linear in time, and 80 bytes of memory per byte."""
    lines = GELU.read_text().split("\n")
    at = next(number for number, line in enumerate(lines) if "fma.rn" in line)
    work = "\n".join(line for line in lines if line.split() and line.split()[0].startswith("fma."))
    repeated = (work + "\n") * (SIZE // len(work))
    text = "\n".join([*lines[:at], repeated, *lines[at:]])
    (tmp_path / "k.ptx").write_text(text)
    assert len(text) > SIZE - len(work)
    # The peak of getrusage would be that of this process, from which the command is started.
    code = (
        "import resource, sys; from traceview.cli import run; status = run(['ptx', 'k.ptx']); "
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM')); "
        "used = resource.getrusage(resource.RUSAGE_SELF).ru_utime; "
        "print(peak.split()[1], used, file=sys.stderr); sys.exit(status)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert "2 × LDG" in done.stdout
    peak_kib, seconds = done.stderr.split()[-2:]
    assert float(seconds) < 2.4 * SIZE / MEGABYTE
    assert int(peak_kib) < 80 * SIZE / 1000


def test_bytes_that_are_not_utf8_are_a_syntax_error_or_read(tmp_path):
    chance, outcomes = random.Random(3), set()
    sound = (PTX_FILES / "gelu-3.9.0-sm90.ptx").read_bytes()
    words = [at for at in range(len(sound) - 1) if sound[at : at + 1].isalnum()]
    for number in range(60):
        content = bytearray(sound)
        # Some within a symbol of every line that names it.
        symbol = re.search(rb"\w{3,}", sound[chance.choice(words) :])[0]
        whole = number % 2 == 0
        content = content.replace(symbol, symbol[:-1] + b"\xff") if whole else content
        content[chance.choice(words)] = 0xFF
        path = tmp_path / "x.ptx"
        path.write_bytes(content)
        try:
            traceview.inspect_ptx(path)
            outcomes.add("read")
        except TraceviewError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}

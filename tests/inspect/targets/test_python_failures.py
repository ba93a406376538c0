"""Python targets that fail: what was compiled before is kept, the rest is one line."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.inspect.targets.python_scripts import (
    HEADER,
    KERNEL,
    LAUNCH,
    error_of,
    needs_torch,
    needs_triton,
)
from tests.places import TRITON_KERNELS
from traceview.base.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.python_targets import compile_python, parse_target
from traceview.kernels.inspect.targets import is_python, split_target


def wait_until(is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@needs_triton
@needs_torch
def test_what_was_compiled_before_a_script_raised_is_kept(script):
    notes = []
    (compiled,) = compile_python(
        script(LAUNCH + "raise ValueError('no\\ndata')\n"), note=notes.append
    )
    assert compiled.launches == 1
    assert notes[0] == (
        "script.py raised ValueError at line 12: no data; only kernels compiled by then are shown"
    )


@needs_triton
@needs_torch
@pytest.mark.parametrize("test", ["cuda.get_device_name(0) == 'x'", "cuda.device_count() > 8"])
def test_what_is_asserted_of_the_gpu_above_the_kernels_is_not_asked(script, test):
    asserted = f"import torch\nassert torch.{test}, 'another GPU'\n"
    below = Path(script(f"{asserted}{LAUNCH}"))
    with pytest.raises(InputError, match="raised AssertionError at line 10: another GPU"):
        compile_python(str(below))
    above = below.with_name("above.py")
    above.write_text(asserted + below.read_text().replace(asserted, ""))
    (compiled,) = compile_python(str(above))
    assert compiled.launches == 1


@needs_triton
@needs_torch
def test_what_was_compiled_before_the_time_ran_out_is_kept(script):
    notes = []
    compile_python(script(LAUNCH))  # From then on it is in the cache, on a busy machine, too.
    # It pauses, or a core works all the time until it is stopped.
    loop = "while True:\n    fill[(4,)](x, 4096, BLOCK=1024)\n    time.sleep(0.005)\n"
    looping = script(f"{LAUNCH}import time\n{loop}")
    (compiled,) = compile_python(looping, CompileOptions(timeout_s=2.0), note=notes.append)
    assert compiled.launches >= 2
    assert notes[0].startswith("script.py did not end within 2 s and was stopped")


@needs_triton
@needs_torch
def test_what_was_compiled_before_the_process_was_left_is_kept(script):
    (compiled,) = compile_python(script(LAUNCH + "import os\nos._exit(0)\n"))
    assert (compiled.launches, compiled.grid) == (1, (4, 1, 1))


@needs_triton
@needs_torch
def test_a_normal_exit_is_no_remark(script):
    notes = []
    compile_python(script(LAUNCH + "import sys\nsys.exit(0)\n"), note=notes.append)
    assert notes == ["script.py: 1 kernel compiled as launched"]


@needs_triton
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_package_here\n", "script.py imports no_such_package_here, which is not"),
        ("raise ValueError('no data')\n", "script.py raised ValueError at line 1: no data"),
        ("import sys\nsys.exit('bad')\n", "script.py exited with 'bad'"),
        ("if True:\n    exit()\n", "script.py exits at line 2, before it launches or defines a"),
        ("import os\nos._exit(0)\n", "script.py exited before it compiled any kernel"),
        ("x = 1\n", "neither launches nor defines a Triton kernel; name the file with its @triton"),
        ("def f(:\n", "script.py, line 1: not valid Python: "),
        ("\0", "not valid Python: "),
        ("", "neither launches nor defines"),
    ],
)
def test_scripts_that_give_nothing(tmp_path, text, words):
    (tmp_path / "script.py").write_text(text)
    assert words in error_of(str(tmp_path / "script.py"))


@needs_triton
def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "script.py").write_bytes(b"\xff\xfe\x00" * 100)
    assert "not valid Python" in error_of(str(tmp_path / "script.py"))


@needs_triton
def test_a_script_that_loops_for_ever(tmp_path):
    (tmp_path / "script.py").write_text("while True: pass\n")
    said = error_of(str(tmp_path / "script.py"), TraceviewError, timeout_s=0.5)
    assert said == (
        "script.py did not end within 0.5 s and was stopped before any kernel was compiled; "
        "allow more time with --timeout"
    )


@needs_triton
def test_a_script_without_an_end_ends_with_a_command_that_is_killed(tmp_path):
    written = tmp_path / "process_id"
    (tmp_path / "script.py").write_text(
        f"import os, pathlib\npathlib.Path({str(written)!r}).write_text(str(os.getpid()))\n"
        "while True: pass\n"
    )
    command = [sys.executable, "-m", "traceview", "ptx", str(tmp_path / "script.py")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: written.exists() and written.read_text())
        process.kill()
    running = Path("/proc", written.read_text(), "stat")
    wait_until(lambda: not running.exists() or ") Z " in running.read_text())


@needs_triton
def test_a_script_that_is_killed(tmp_path):
    (tmp_path / "script.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    said = error_of(str(tmp_path / "script.py"), TraceviewError)
    assert "was killed by SIGKILL (possibly out of memory)" in said


@needs_triton
def test_a_kernel_that_is_not_there(script):
    assert "has no Triton kernel 'fil'; it has: fill" in error_of(script() + ":fil")


@needs_triton
def test_a_signature_for_one_of_several():
    said = error_of(str(TRITON_KERNELS / "copies.py"), signature="*fp32")
    assert "copies.py has 4 kernels; name one of: strided_copy, gather" in said


@needs_triton
def test_a_kernel_that_does_not_compile(tmp_path):
    broken = KERNEL.replace("1.0", "no_such_name")
    (tmp_path / "script.py").write_text(HEADER + broken)
    said = error_of(str(tmp_path / "script.py"))
    assert "fill does not compile: " in said
    assert "no_such_name is not defined; correct the kernel" in said
    assert "--signature" not in said


@needs_triton
def test_a_module_that_is_not_there():
    assert "finds no module no_such.module" in error_of("no_such.module:kernel")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("none.py", "none.py does not exist"),
        (".py:", "does not exist"),
        ("no-module:kernel", "is not a Python target; write FILE.py"),
        ("", "is not a Python target"),
        ("a.py:b:c", "is not a Python target"),
    ],
)
def test_what_is_no_target(text, words):
    with pytest.raises(InputError, match=re.escape(words)):
        parse_target(text)


def test_a_folder_named_like_a_script(tmp_path):
    (tmp_path / "x.py").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        parse_target(str(tmp_path / "x.py"))


def test_two_names_for_the_kernel():
    with pytest.raises(InputError, match="leave out one of them"):
        parse_target("a.b:one", "two")
    assert parse_target("a.b:one", "one").kernel == "one"


def test_an_unknown_architecture():
    with pytest.raises(InputError, match="sm_42"):
        compile_python(str(TRITON_KERNELS / "gelu.py"), CompileOptions(arch="sm_42"))


def test_a_python_that_is_not_there(monkeypatch):
    monkeypatch.setenv("TRACEVIEW_PYTHON", "/no/such/python")
    said = error_of(str(TRITON_KERNELS / "gelu.py"), ToolNotFoundError)
    assert (
        said == "/no/such/python cannot run: No such file or directory; correct $TRACEVIEW_PYTHON"
    )


def test_a_python_without_triton(tmp_path, monkeypatch):
    (tmp_path / "triton.py").write_text("raise ImportError('blocked')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    said = error_of(str(TRITON_KERNELS / "gelu.py"), ToolNotFoundError)
    assert (
        f"{sys.executable} cannot import (blocked); install it: pip install 'traceview[ptx]'"
        in said
    )


@pytest.mark.parametrize("name", ["a.cu", "a.ptx", "b:c.cubin", "lib.so", "gone.cu"])
@pytest.mark.parametrize("kernel", ["k", "ns::k", "k<256>", "*"])
def test_a_kernel_of_a_file(name, kernel, tmp_path):
    file = tmp_path / name
    if name != "gone.cu":
        file.touch()
    target, options = split_target(f"{file}:{kernel}", CompileOptions())
    assert (target, options.kernel) == (str(file), kernel)
    assert not is_python(f"{file}:{kernel}")
    with pytest.raises(InputError, match="name different kernels"):
        split_target(f"{file}:{kernel}", CompileOptions(kernel="other"))


@pytest.mark.parametrize("target", ["a.py", "a.py:k", "module.a:k", "a.cu", "a.cu:", "folder"])
def test_what_names_no_kernel_of_a_file(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    assert split_target(target, CompileOptions()) == (target, CompileOptions())

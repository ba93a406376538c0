"""What runs inside the recorded program: it gathers kernels, and it is never in the way."""

import ast
import os
import stat
import subprocess
import sys
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tests.recorders.recorded_programs import LINE_OF_DEF, environment, gathered, notes, run
from traceview.kernels.headless.worker.event_log import arguments_of
from traceview.kernels.ptx.model import Argument
from traceview.traces.recorders import injected
from traceview.traces.recorders.injected.traceview_injected import dynamo, kernel_metadata

triton = pytest.importorskip("triton")


INJECTED = sorted((Path(injected.__file__).parent).rglob("*.py"))


@pytest.mark.parametrize("path", INJECTED, ids=lambda path: path.name)
def test_an_older_python_can_run_it(path):
    """The recorded Python is 3.9 at least; one that is older has to get past sitecustomize."""
    version = (3, 5) if path.name in ("sitecustomize.py", "hidden.py") else (3, 9)
    tree = ast.parse(path.read_text(), feature_version=version)
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not {name for name in imported if name.startswith("traceview.")}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "gathered"


def python(code, folder, *options, **changes):
    """Run a line of Python as the program."""
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=environment(folder, **changes),
        cwd=folder.parent,
        capture_output=True,
        text=True,
    )


def test_a_kernel_with_all_that_is_known_of_it(folder):
    done = run("compiled()", folder)
    assert done.returncode == 0, done.stderr
    (kernel,) = gathered(folder)
    assert kernel["name"] == "scale"
    assert (kernel["arch"], kernel["num_warps"], kernel["shared_bytes"]) == (90, 4, 0)
    assert ".entry scale(" in kernel["ptx"]
    assert kernel["cubin"].startswith("f0VMRg")
    flags = [(a["name"], a["type"], a["divisible_by_16"]) for a in kernel["arguments"]]
    assert flags == [
        ("x", "*fp32", True),
        ("y", "*fp32", True),
        ("n", "i32", True),
        ("factor", "fp32", False),
        ("BLOCK", "constexpr", False),
        ("TYPE", "constexpr", False),
    ]
    assert [a.get("value") for a in kernel["arguments"][4:]] == [1024, "tl.float16"]
    assert kernel["source_file"] == str(folder.parent / "program.py")
    assert kernel["source_line"] == LINE_OF_DEF
    assert kernel["source_text"].startswith("def scale(x, y, n,")
    assert kernel["options"]["num_ctas"] == 1
    assert notes(folder) == ""


class _Tuples(NamedTuple):
    """What Triton makes of the types of a kernel that is given tuples."""

    signature: Mapping[str, object]
    constants: Mapping[tuple[int, ...], object]
    attrs: Mapping[tuple[int, ...], object]


def test_what_is_in_tuples_is_told_as_the_compiler_of_traceview_tells_it():
    pair = namedtuple("Pair", "left right")
    divisible = [["tt.divisibility", 16]]
    source = _Tuples(
        {"pairs": (pair("*fp16", "*fp16"), "constexpr"), "n": "i32", "B": "constexpr"},
        {(0, 1): 1, (2,): 64},
        {(0, 0, 1): divisible, (1,): divisible},
    )
    told = list(kernel_metadata._arguments(*source))
    assert [tuple(each.values()) for each in told] == [
        ("pairs[0].left", "*fp16", False),
        ("pairs[0].right", "*fp16", True),
        ("pairs[1]", "constexpr", False, 1),
        ("n", "i32", True),
        ("B", "constexpr", False, 64),
    ]
    assert [Argument(**each) for each in told] == list(arguments_of(source))


def test_a_cache_hit_counts_too(folder):
    run("compiled(); compiled(8)", folder)
    first = gathered(folder)
    for path in folder.iterdir():
        path.unlink()
    run("compiled(); compiled(8); compiled(8)", folder)
    assert gathered(folder) == first
    assert {kernel["num_warps"] for kernel in first} == {4, 8}


def test_children_gather_too(folder):
    run("import subprocess, sys\nsubprocess.run([sys.executable, 'child.py'], check=True)", folder)
    assert gathered(folder) == []
    program = folder.parent / "program.py"
    (folder.parent / "child.py").write_text(program.read_text().partition("import subprocess")[0])
    with (folder.parent / "child.py").open("a") as child:
        child.write("compiled()")
    run("import subprocess, sys\nsubprocess.run([sys.executable, 'child.py'], check=True)", folder)
    assert len(gathered(folder)) == 1


def test_a_fork_gathers_too(folder):
    run(
        "import os\npid = os.fork()\nif not pid:\n    compiled()\n    os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0",
        folder,
    )
    assert len(gathered(folder)) == 1


def test_a_program_that_changes_pythonpath_gathers_by_itself(folder):
    done = run(
        "import os, subprocess, sys\nos.environ['PYTHONPATH'] = '/nowhere'\ncompiled()\n"
        "subprocess.run([sys.executable, '-c', 'pass'], check=True)",
        folder,
    )
    assert done.returncode == 0, done.stderr
    assert len(gathered(folder)) == 1


def test_a_pythonpath_of_the_users_stays(folder, monkeypatch, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "only_there.py").write_text("value = 7")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'mine'}")
    done = python("import only_there; print(only_there.value)", folder)
    assert done.stdout == "7\n", done.stderr


def test_no_entry_for_the_current_folder_appears(folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    assert "" not in environment(folder)["PYTHONPATH"].split(os.pathsep)


HIDDEN = "import sys\nsys.hidden_ran = __name__, __file__\n"


def test_the_sitecustomize_that_ours_hides_runs(folder, monkeypatch, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text(HIDDEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    code = "import sys, sitecustomize; print(sys.hidden_ran[0], sitecustomize.__file__)"
    done = python(code, folder)
    assert done.stdout == f"sitecustomize {tmp_path}/mine/sitecustomize.py\n", done.stderr
    assert (folder / "started").exists()


@pytest.mark.parametrize("hidden", ["raise ValueError('mine')", "import no_such_module", "1 +"])
def test_a_hidden_one_that_fails_fails_as_it_would_alone(folder, monkeypatch, tmp_path, hidden):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text(hidden)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    alone = subprocess.run(
        [sys.executable, "-c", "print('ran')"], capture_output=True, text=True, cwd=tmp_path
    )
    with_ours = python("print('ran')", folder)
    assert with_ours.returncode == alone.returncode
    assert with_ours.stdout == alone.stdout
    assert with_ours.stderr.splitlines()[-1] == alone.stderr.splitlines()[-1]


@pytest.mark.parametrize("option", ["-S", "-I", "-E"])
def test_where_python_heeds_no_pythonpath_nothing_happens(folder, option):
    done = python("print('ran')", folder, option)
    assert (done.stdout, done.stderr) == ("ran\n", "")
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_not_in_the_way(folder):
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    # Of root no folder is safe: one that is a file is.
    broken = folder if os.getuid() else folder.parent / "program.py"
    done = run("compiled()\nprint('ran')", folder, TRACEVIEW_GATHER=str(broken))
    folder.chmod(0o700)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert gathered(folder) == []


def test_a_folder_that_went_away_is_not_in_the_way(folder):
    done = run("compiled()\nprint('ran')", folder, TRACEVIEW_GATHER="/no/such/folder")
    assert (done.stdout, done.stderr) == ("ran\n", "")


def test_a_triton_that_is_different_leaves_a_note(folder, tmp_path):
    package = tmp_path / "triton" / "compiler"
    package.mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "compiler.py").write_text("value = 1")
    done = python("import triton.compiler.compiler as c; print(c.value)", folder)
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert "CompiledKernel" in notes(folder)


def test_a_kernel_that_cannot_be_described_leaves_a_note(folder):
    odd = "import triton.compiler.compiler as c\n"
    odd += "c.AsmDict.__contains__ = lambda self, key: 1 / 0\ncompiled()\nprint('ran')"
    done = run(odd, folder)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert notes(folder) == "recording kernels failed: ZeroDivisionError: division by zero\n"


def test_hardly_anything_is_imported(folder):
    """Functools and warnings at most, and what they import: nothing that a program may replace."""
    code = "import sys; print(*sys.modules)"
    usual = [sys.executable, "-c", f"import __future__, functools, warnings; {code}"]
    alone = subprocess.run(usual, capture_output=True, text=True)
    more = set(python(code, folder).stdout.split()) - set(alone.stdout.split())
    others = {name for name in more if not name.startswith(("traceview_injected", "importlib"))}
    # The latter two are built in.
    assert others <= {"sitecustomize", "atexit", "gc"}


def test_a_module_keeps_its_loader_and_its_spec(folder):
    code = (
        "import inspect, importlib.util, triton.compiler.compiler as c, sys\n"
        "print(type(c.__loader__).__name__, c.__spec__.loader is c.__loader__,\n"
        "      'exec_module' in vars(c.__loader__), 'class CompiledKernel' in inspect.getsource(c))"
    )
    assert python(code, folder).stdout == "SourceFileLoader True False True\n"


def test_asking_for_a_spec_before_the_import_does_no_harm(folder):
    ask = "import importlib.util as u\nu.find_spec('triton.compiler.compiler')\n"
    done = run(f"compiled()\nprint({ask!r})", folder)
    script = folder.parent / "program.py"
    script.write_text(ask + script.read_text())
    (kernel,) = folder.glob("*.json")
    kernel.unlink()
    again = python("import runpy; runpy.run_path('program.py')", folder)
    assert (done.returncode, again.returncode) == (0, 0), again.stderr
    assert len(gathered(folder)) == 1


NSYS = "/opt/nvidia/nsight/target-linux-x64"


@pytest.mark.parametrize("preloaded", [None, "", "/usr/lib/libjemalloc.so"])
@pytest.mark.parametrize("under_nsys", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_compile_workers_start_without_the_libraries_of_nsys(
    monkeypatch, preloaded, under_nsys, fails
):
    """Everything else in their environment, and all of it in the program's, is as it was."""
    ours = [f"{NSYS}/libToolsInjectionProxy64.so", f"{NSYS}/libOther.so"] if under_nsys else []
    every = ":".join([*ours, *([preloaded] if preloaded is not None else [])])
    given = {"LD_PRELOAD": every} if ours or preloaded is not None else {}
    if under_nsys:
        names = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
        given |= dict.fromkeys(names, f"{NSYS}/libToolsInjection64.so")
    for name in dynamo._LOADED:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    started = []

    class SubprocPool:
        def __init__(self, workers, *, kind):
            started.append(dict(os.environ))
            self.workers = workers, kind
            if fails:
                raise ChildProcessError

    dynamo.unprofile_workers(SimpleNamespace(SubprocPool=SubprocPool))
    before = dict(os.environ)
    if fails:
        with pytest.raises(ChildProcessError):
            SubprocPool(4, kind="fork")
    else:
        assert SubprocPool(4, kind="fork").workers == (4, "fork")

    assert dict(os.environ) == before
    [of_worker] = started
    expected = {name: value for name, value in before.items() if name not in dynamo._LOADED}
    expected |= {"LD_PRELOAD": preloaded} if preloaded else {}
    assert of_worker == (expected if under_nsys else before)

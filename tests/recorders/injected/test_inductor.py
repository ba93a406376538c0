"""Inductor's launchers, which load kernels past Triton's: they are gathered, too.

Inductor itself compiles for no GPU that is not there. So a kernel is compiled as it does, made a
result of its own, sent through pickle as from a compile worker or a cache, and loaded by a
launcher whose last step, that into the driver, is taken out.
"""

import pytest

from tests.recorders.recorded_programs import LINE_OF_DEF, gathered, notes, run

pytest.importorskip("triton")
pytest.importorskip("torch")
pytestmark = pytest.mark.slow

# A process for each way, forked from one that has imported Inductor: that takes seconds.
WAYS = """
import inspect, os, pickle, sys, traceback, types
from triton.runtime.autotuner import Config
from torch._inductor.runtime import triton_heuristics as h
from torch._inductor.runtime.hints import HeuristicType

def go(way, program):
    try:
        exec(program, globals() | {"way": way})
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

for way, program in PROGRAMS.items():
    child = os.fork() or go(way, program)
    assert os.waitpid(child, 0)[1] == 0, way
"""
LOADED = """
kernel = compiled()
(path,) = [path for name, path in kernel.metadata_group.items() if name.endswith(".cubin")]
# One that this process did not compile, as far as anybody can tell.
kernel.hash = way

meta = {"signature": TYPES, "constants": {"BLOCK": 1024, "TYPE": tl.float16}, "device": 0,
        "device_type": "cuda", "cc": 90, "configs": [kernel.src.attrs]}
"""
STATIC = (
    LOADED
    + """
kernel._cubin_path = path
static = h.StaticallyLaunchedCudaKernel(kernel)
# Up to torch 2.11 there is no module before the function.
of_a_module = "self.module" in inspect.getsource(h.StaticallyLaunchedCudaKernel.load_kernel)
type(static).C_impl = types.SimpleNamespace(
    _load_kernel=lambda *_: (1, 2, 18, 0)[not of_a_module :], _unload_kernel=lambda *_: None)
result = h.StaticTritonCompileResult(static, Config({"BLOCK": 1024}), meta, {"grid_type": "Grid1D"})
result = pickle.loads(pickle.dumps(result))
assert result.kernel.cubin_path is None
type(result).reload_cubin_path = lambda self: setattr(self.kernel, "cubin_path", path)
"""
)
TUNER = """
tuner = h.CachingAutotuner.__new__(h.CachingAutotuner)
tuner.fn, tuner.filename = scale, "/inductor/generated.py"
tuner.fn.fn = None
tuner.launchers, tuner.compile_results = [], [result]
tuner.get_device_interface = lambda: None
tuner.triton_meta = {"device": 0}
import contextlib
import torch._dynamo.device_interface as d
d.DeviceGuard = lambda *_: contextlib.nullcontext()
"""


# As from a compile worker without the static launcher: its constructor never runs.
PICKLED = """
result = h.TritonCompileResult.__new__(h.TritonCompileResult)
copy = h.CompiledKernel.__new__(h.CompiledKernel)
copy.__dict__.update(kernel.__dict__)
result.kernel, result.config, result.compile_meta = copy, None, meta
try:
    result.make_launcher()
except Exception as error:
    print(type(error).__name__)
"""
LONELY = "os.unlink(path[:-5] + 'json')\nos.unlink(path[:-5] + 'ptx')\n"
PROGRAMS = {
    "files": STATIC + TUNER + "h.CachingAutotuner._make_launchers(tuner)",
    "told": STATIC.replace("kernel.hash = way\n", "") + "result.make_launcher()",
    "pickled": LOADED + PICKLED,
    "lonely": STATIC + LONELY + "result.make_launcher()",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a program gathered that launched a kernel in each of these ways."""
    folder = tmp_path_factory.mktemp("inductor") / "gathered"
    done = run(f"PROGRAMS = {PROGRAMS!r}\n{WAYS}", folder)
    assert done.returncode == 0, done.stderr
    return folder


def launched(folder, way):
    """The kernels that were launched in one of the ways and that no compiler told of."""
    return [kernel for kernel in gathered(folder) if kernel["hash"] == way]


def test_a_kernel_from_a_cache_is_known_by_its_files_and_by_its_result(folder):
    assert notes(folder) == ""
    (kernel,) = launched(folder, "files")
    assert (kernel["name"], kernel["arch"], kernel["num_warps"]) == ("scale", 90, 4)
    assert ".entry scale(" in kernel["ptx"]
    assert kernel["cubin"].startswith("f0VMRg")
    told = {a["name"]: (a["divisible_by_16"], a.get("value")) for a in kernel["arguments"]}
    assert told["n"] == (True, None)
    assert told["BLOCK"] == (False, 1024)
    assert kernel["source_file"] == "/inductor/generated.py"
    assert kernel["source_line"] == LINE_OF_DEF


def test_without_its_neighbours_the_cubin_is_enough(folder):
    (kernel,) = launched(folder, "lonely")
    assert (kernel["name"], kernel["arch"], kernel["ptx"]) == ("scale", 90, None)
    assert kernel["cubin"]


def test_what_the_compiler_told_is_not_told_again(folder):
    """Each way compiles first, or takes from Triton's cache, what it then launches."""
    files = [path.name for path in folder.glob("*.json")]
    told = [name for name in files if not name.startswith((*PROGRAMS,))]
    assert [name.count(".") for name in told] == [1]
    assert len(files) == len(PROGRAMS)


def test_a_compiled_kernel_out_of_a_pickle(folder):
    assert [kernel["name"] for kernel in launched(folder, "pickled")] == ["scale"]

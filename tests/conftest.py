"""The shipped recordings, unpacked once a session, and the tools that some tests need."""

import gc
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.headless.forked_workers import forked_workers as forked_workers
from tests.headless.forked_workers import fresh_workers as fresh_workers
from tests.places import DATA, REPOSITORY
from tests.toolchain.kept_results import kept_results as kept_results
from tests.triton_compiler import compile_triton as compile_triton
from tests.triton_compiler import triton_cache as triton_cache
from traceview.cli import run

Bench = Callable[..., tuple[int, str, str]]
GPU_RECORDINGS = (
    "mlp_nosync",
    "mlp_sync",
    "mlp_sync_callchains",
    "graph_nodes",
    "graph_whole",
    "two_processes",
    "sync_sites",
    "mlp_print_loss",
    "queue_full",
    "streams",
    "cuda_graphs",
    "cuda_graphs_nodes",
    "training",
    "threads",
    "threads_main_ranges",
    "cupy",
    "jax",
    "two_gpus",
    "first_checkpoint",
)
WAVE_RECORDINGS = ("launches", "waves", "waves_competing")
RANGES_ONLY = "ranges_2023_4"
RATE_RECORDINGS = tuple(
    name for name in ("metrics", "rates") if (DATA / f"{name}.sqlite.xz").exists()
)
SHAPES = ("shapes", "products")
COLLECTIVES, NATIVE = ("collectives", "ddp_late"), ("host_loop",)
SHIPPED = (
    *(*GPU_RECORDINGS, *WAVE_RECORDINGS, *RATE_RECORDINGS, *SHAPES),
    *(*COLLECTIVES, *NATIVE, RANGES_ONLY),
)


# Before numpy and torch are imported, and for all that tests start: threads that wait for one
# another take four times the CPU time where four workers share two cores.
for _pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_pool, "1")

# No test depends on how busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A shell that starts `make test &` has its children ignore SIGINT and SIGQUIT, and nohup SIGHUP;
# what the tests start would inherit that, and not end when it is told to.
for _ending in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_ending) == signal.SIG_IGN:
        _begins_with = signal.default_int_handler if _ending == signal.SIGINT else signal.SIG_DFL
        signal.signal(_ending, _begins_with)

# Until all tests are collected: hardly any of what that makes is garbage.
gc.disable()


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Two workers more than cores: many tests wait for a process, a browser or a limit."""
    is_given = "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ
    return (yield) + (0 if is_given else 2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each worker begin with some of the tests that run whole programs, module by module.

    A long one at the end would keep one worker alone.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    programs = [item for item in items if item.get_closest_marker("programs")]
    others = [item for item in items if not item.get_closest_marker("programs")]
    begins: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for _, of_module in groupby(programs, key=lambda item: item.path):
        min(begins, key=len).extend(of_module)
    ordered: list[pytest.Item] = []
    for number, begin in enumerate(begins):
        # As many as pytest-xdist gives to each worker at first.
        count = (len(items) - len(ordered)) // (workers - number)
        place = max(count - len(begin), 0)
        ordered += [*begin, *others[:place]]
        others = others[place:]
    items[:] = ordered + others


def pytest_collection_finish() -> None:
    """Leave ten thousand tests and PyTorch out of all later garbage collections: 0.5 s each."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _cache_of_tests(shared_folder: Path) -> Iterator[None]:
    """Caches that neither hold what earlier runs left nor leave anything to the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(shared_folder / "cache"))
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the session, which the workers of pytest-xdist share: replace files whole."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def unpack(shared_folder: Path) -> Callable[[str], Path]:
    """Give the path of a shipped recording, unpacked. It is shared: copy it before writing."""
    folder = shared_folder / "recordings"
    folder.mkdir(exist_ok=True)

    def unpacked(name: str) -> Path:
        path = folder / f"{name}.sqlite"
        if not path.exists():
            written = shared_folder / f"{name}.{os.getpid()}"
            written.write_bytes(lzma.decompress((DATA / f"{name}.sqlite.xz").read_bytes()))
            written.chmod(0o444)
            written.replace(path)
        return path

    return unpacked


@pytest.fixture(scope="session")
def nsys() -> Path:
    """A working nsys; the test skips where there is none."""
    places = (
        os.environ.get("TRACEVIEW_TEST_NSYS"),
        REPOSITORY / ".cache" / "nsys" / "bin" / "nsys",
        shutil.which("nsys"),
    )
    for place in places:
        if place and _answers(Path(place)):
            return Path(place)
    pytest.skip("no nsys here: run scripts/install-nsys.sh .cache/nsys")


def _answers(tool: Path) -> bool:
    if not tool.exists():
        return False
    done = subprocess.run([tool, "--version"], capture_output=True, text=True)
    return done.returncode == 0 and "NVIDIA Nsight Systems" in done.stdout


@pytest.fixture
def only_sleeping_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still but for sleeping, which it passes over: no load can disturb it."""
    slept_ns = [0]

    def sleep(seconds: float) -> None:
        slept_ns[0] += round(seconds * 1e9)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: slept_ns[0])


@pytest.fixture(autouse=True, scope="session")
def no_hurry() -> Iterator[None]:
    """Trials of `ptx` end with what there is to try, not by the clock of a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("traceview.kernels.headless.compile_options.BUDGET_S", 600.0)
        yield


@pytest.fixture
def bench_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Run `traceview bench` in this process, which is left as it was: status, output, errors."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(sys, "path", list(sys.path))

    def bench(*arguments: object) -> tuple[int, str, str]:
        status = run(["bench", *map(str, arguments)])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return bench

"""The rooms: who may import whom, and what must stay inside one of them."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

import traceview

ROOT = Path(traceview.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
LEVELS = (
    {"errors", "findings", "units", "intervals", "tables", "groups", "outputs", "version"},
    {"hardware"},
    {"ptx"},
    {"toolchain"},
    {"headless", "trace"},
    {"facts"},
    {"inspect"},
    {"analyses", "bench", "recorders"},
    {"report"},
    {"render"},
    {"cli"},
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
# The package's front door offers names of all rooms, and the version to all of them. `display`
# draws any value by way of `render`, imported when it is called (its docstring says why).
FRONT = {"__init__", "__main__", "display"}

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_modules(source: str, package: Sequence[str]) -> Iterator[str]:
    """Every module that an import statement anywhere in the source may load, fully named."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def imports_of(path: Path) -> set[str]:
    package = ["traceview", *path.relative_to(ROOT).parts[:-1]]
    return set(imported_modules(path.read_text(), package))


def rooms_of(modules: Iterable[str]) -> set[str]:
    return {m.split(".")[1] for m in modules if m.startswith("traceview.")} & set(LEVEL)


@each_file
def test_imports_point_down(path):
    here = room_of(path)
    if here in FRONT:
        return
    assert here in LEVEL, f"{here} is a new room: give it a place in LEVELS"
    for there in rooms_of(imports_of(path)) - {here}:
        free = LEVEL[here] == LEVEL[there] == 0
        assert LEVEL[there] < LEVEL[here] or free, f"{path}: {here} imports {there}"


@pytest.mark.parametrize(
    "source",
    [
        "import traceview.render.report.text",
        "from traceview import render",
        "from traceview.render.report.text import draw",
        "from .. import render",
        "from ..render import text",
        "def late():\n    from traceview.render import text",
    ],
)
def test_no_form_of_import_is_overlooked(source):
    assert rooms_of(imported_modules(source, ["traceview", "trace"])) == {"render"}


def test_display_imports_upwards_only_when_called():
    """Importing it loads rooms of the lowest level alone."""
    program = (
        "import sys, traceview.display\n"
        "print(*(m.split('.')[1] for m in sys.modules if m.startswith('traceview.')))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert set(ran.stdout.split()) - FRONT <= LEVELS[0], ran.stderr


@each_file
def test_three_rooms_start_processes(path):
    starts = {"subprocess", "os.system", "os.popen", "multiprocessing", "pty"}
    # toolchain runs ptxas and nvdisasm, headless the inspected script, recorders nsys.
    assert room_of(path) in {"toolchain", "headless", "recorders"} or not starts & imports_of(path)


@each_file
def test_only_trace_knows_the_names_of_nsight(path):
    names = ("CUPTI_ACTIVITY", "NVTX_EVENTS", "StringIds")
    assert room_of(path) == "trace" or not [n for n in names if n in path.read_text()]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "analyses").glob("*.py")), ids=lambda path: path.stem
)
def test_analyses_only_compute(path):
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"print", "open"}
    modules = {module.partition(".")[0] for module in imports_of(path)}
    assert not modules & {"matplotlib", "pandas", "sqlite3", "pathlib", "io", "rich"}


def test_the_core_needs_neither_torch_nor_triton():
    modules = [
        ".".join(["traceview", *path.relative_to(ROOT).with_suffix("").parts])
        for path in FILES
        if path.stem not in FRONT
    ]
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(*sorted({'torch', 'triton', 'nvtx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr

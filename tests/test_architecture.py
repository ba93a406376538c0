"""The rooms: who may import whom, and what must stay inside one of them."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

import traceview

ROOT = Path(traceview.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
LEVELS = (
    {
        "errors",
        "failures",
        "findings",
        "units",
        "vocabulary",
        "intervals",
        "tables",
        "memory",
        "groups",
        "outputs",
        "records",
        "version",
        "stages",
        "statistics",
        "compiled",
        "display",
    },
    {"hardware", "remedies"},
    {"ptx"},
    {"toolchain"},
    {"headless", "trace"},
    {"facts"},
    {"rules"},
    {"inspect"},
    {"analyses", "bench", "recorders"},
    {"plan"},
    {"ranking", "explanation", "edits"},
    {"timeline"},
    {"reporting"},
    {"comparison"},
    {"ranks"},
    {"tryout"},
    {"api"},
    {"testing"},
    {"render"},
    {"serve"},
    {"cli"},
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
WINGS = {"base", "kernels", "traces", "trials"}
# All that one wing may import of another, wherever it does.
DOORS = {
    # Who reads a recording need not know how a kernel is compiled or judged.
    ("traces", "kernels"): {
        "ptx.accesses",
        "ptx.cubin",
        "ptx.lexer",
        "ptx.model",
        "ptx.producers",
        "ptx.scoreboards",
        "toolchain.listings",
        "toolchain.tools",
        "headless.worker.forked_task",
        "inspect.kernel_report",
        "inspect.launched_widths",
        "inspect.running_kernel",
        "inspect.targets",
    },
    # A recording or a report of ncu is a target of `traceview ptx`: its kernels, their launches and
    # samples.
    ("kernels", "traces"): {
        "facts.code",
        "trace",
        "trace.load",
        "trace.ncu_report",
        "trace.warp_samples",
    },
    ("trials", "kernels"): {
        "headless.compile_options",
        "inspect.kernel_report",
        "inspect.target_report",
        "inspect.targets",
        "ptx.model",
    },
    ("trials", "traces"): {
        "facts.code",
        "facts.forecast",
        "facts.work.from_ranges",
        "recorders.checks",
        "trace",
        # Types alone.
        "plan",
        "reporting",
    },
}
# The package's front door offers names of all rooms, and the version to all of them.
FRONT = {"__init__", "__main__"}


def room_of(path: Path) -> str:
    first, *others = path.relative_to(ROOT).parts
    return (others[0] if first in WINGS else first).removesuffix(".py")


def wing_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements inside a node. Expressions, most of a tree, hold none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        # The body of a lambda or a conditional expression is no list.
        for child in getattr(node, name, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


def imported_modules(source: str, package: Sequence[str]) -> Iterator[str]:
    """Every module that an import statement anywhere in the source may load, fully named."""
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@cache
def imports_of(path: Path) -> set[str]:
    package = ["traceview", *path.relative_to(ROOT).parts[:-1]]
    return set(imported_modules(path.read_text(), package))


def rooms_of(modules: Iterable[str]) -> set[str]:
    parts = [m.split(".")[1:] for m in modules if m.startswith("traceview.")]
    return {each[each[0] in WINGS] for each in parts if len(each) > (each[0] in WINGS)} & set(LEVEL)


def test_every_room_has_a_level():
    assert {room_of(path) for path in FILES} - FRONT - set(LEVEL) == set()


def test_wings_meet_at_their_doors():
    passed: dict[tuple[str, str], set[str]] = {}
    for path in MODULES.values():
        for module in loaded_by(path):
            there, _, name = module.removeprefix("traceview.").partition(".")
            if there in WINGS - {"base", wing_of(path)} and wing_of(path) in WINGS:
                passed.setdefault((wing_of(path), there), set()).add(name)
    assert passed == DOORS


def test_the_base_rests_on_itself():
    base = [path for path in MODULES.values() if wing_of(path) == "base"]
    needed = {name for path in base for name in loaded_by(path)}
    assert {name for name in needed if not name.startswith("traceview.base")} == set()


def test_every_folder_says_what_it_holds():
    folders = [path for path in FILES if path.name == "__init__.py"]
    assert len(folders) > 50
    assert [path for path in folders if not ast.get_docstring(ast.parse(path.read_text()))] == []


def points_down(here: str, there: str) -> bool:
    return LEVEL[there] < LEVEL[here] or LEVEL[here] == LEVEL[there] == 0


def test_imports_point_down():
    inner = [path for path in FILES if room_of(path) not in FRONT]
    imports = [(p, there) for p in inner for there in rooms_of(imports_of(p)) - {room_of(p)}]
    assert len(imports) > 500
    assert [(p, there) for p, there in imports if not points_down(room_of(p), there)] == []


def test_facts_rest_on_the_graph_and_savings_on_facts():
    """Inside facts: idle time and savings rest on the dependencies, and no fact on savings."""
    by_folder = {
        folder: {
            module
            for path in (ROOT / "traces" / "facts" / folder).glob("*.py")
            for module in imports_of(path)
        }
        for folder in ("dependencies", "idle", "savings", "operations", "steps", "waits")
    }
    for folder, modules in by_folder.items():
        above = {"savings"} if folder != "savings" else set()
        above |= {"idle"} if folder == "dependencies" else set()
        assert not {
            each for each in modules if each.split(".")[2:4] in [["facts", a] for a in above]
        }


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


def test_a_value_is_shown_by_what_render_registers():
    """The registry imports no renderer, and each name in it is a class of the package."""
    program = (
        "import sys, traceview.base.display\n"
        "before = {m for m in sys.modules if m.startswith('traceview.render')}\n"
        "from traceview.render import forms\n"
        "print(before, *sorted(m for m in sys.modules if m.startswith('traceview.render.')))\n"
        "print(*{name for form in forms.RENDERERS.values() for name in form} | {*forms.DOCUMENTS})"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded, names = ran.stdout.splitlines()
    assert loaded == "set() traceview.render.forms", ran.stderr
    sources = "\n".join(path.read_text() for path in FILES)
    for name in set(names.split()) - {"object"}:
        assert re.search(rf"^class {name}[:(]", sources, re.MULTILINE), name


MOST_FILES = 25
# Facts that no two answers share, and why they live in facts all the same.
EXCUSED_FACTS = {
    "traceview.traces.facts.steps.inferred": "traceview.analyze adds steps before any answer",
    "traceview.traces.facts.steps.repetition": "it is what `inferred` finds steps by",
    "traceview.traces.facts.launch_lines": "rules ask it for the findings of every question",
}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES if "injected" not in path.parts}


@cache
def part_of(path: Path) -> str:
    """What a module counts as among those of its room.

    A folder is one part, unless it has folders itself: then each of its files is a part.
    """
    folder = path.parent
    whole = path.name == "__init__.py" or not any(folder.glob("*/__init__.py"))
    return str((folder if whole else path.with_suffix("")).relative_to(ROOT.parent))


@cache
def loaded_by(path: Path) -> set[str]:
    """The modules of traceview that a file imports: the submodule where that is what is named."""
    named = imports_of(path) & set(MODULES)
    return {name for name in named if not any(n.startswith(f"{name}.") for n in named)} or named


def graph_of_parts() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for path in MODULES.values():
        # The front door and a list of contents name what lies below them.
        if path.name == "__init__.py" or room_of(path) in FRONT:
            continue
        here = part_of(path)
        there = {part_of(MODULES[module]) for module in loaded_by(path)}
        graph.setdefault(here, set()).update(there - {here})
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Parts that import each other in a circle: what is left when all free parts are taken away."""
    left = {part: set(others) for part, others in graph.items()}
    while free := {part for part, others in left.items() if not others & set(left)}:
        left = {part: others for part, others in left.items() if part not in free}
    entered = {part for others in left.values() for part in others}
    return [sorted(entered & set(left))] if left else []


def test_parts_of_a_room_import_in_one_direction():
    assert circles(graph_of_parts()) == []


def test_a_circle_is_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"]]


def test_a_folder_holds_few_files():
    """One that holds more wants a folder for each of its topics."""
    held = Counter(path.parent for path in FILES if path.name != "__init__.py")
    assert {folder: files for folder, files in held.items() if files > MOST_FILES} == {}


def test_a_class_name_is_unique():
    owners: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for name in re.findall(r"^ *class ([A-Za-z]\w*)[:(]", path.read_text(), re.MULTILINE):
            owners.setdefault(name, []).append(module)
    assert len(owners) > 500
    assert {name: modules for name, modules in owners.items() if len(modules) > 1} == {}


@cache
def modules_that_load() -> dict[str, list[str]]:
    """By module, those that load it as they are imported."""
    loading: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        if path.name != "__init__.py":
            for loaded in loaded_by(path):
                loading.setdefault(loaded, []).append(module)
    return loading


def users_of(module: str) -> set[str]:
    """The answers, and the rooms, that depend on a fact, through other facts or at once."""
    users, seen, ahead = set(), {module}, [module]
    while ahead:
        for other in modules_that_load().get(ahead.pop(), ()):
            parts = other.split(".")
            if parts[2:3] != ["facts"]:
                users.add("/".join(parts[2:4] if parts[1] in WINGS else parts[1:3]))
            elif other not in seen:
                seen.add(other)
                ahead.append(other)
    return users


def test_a_fact_serves_two_answers():
    """One that serves one alone belongs to the folder of its user."""
    facts = {
        module
        for module, path in MODULES.items()
        if module.startswith("traceview.traces.facts.") and path.name != "__init__.py"
    }
    assert set(EXCUSED_FACTS) <= facts
    users = {module: users_of(module) for module in facts - set(EXCUSED_FACTS)}
    assert {module: by for module, by in users.items() if len(by) <= 1} == {}


def may_start_processes(path: Path) -> bool:
    # toolchain runs ptxas and nvdisasm, headless the inspected script, recorders nsys.
    in_room = room_of(path) in {"toolchain", "headless", "recorders"}
    is_pager = path.parts[-2:] == ("cli", "process.py")
    # One process per recording.
    reads_ranks = path.parts[-3:-1] == ("ranks", "execution")
    # The user's program, with and without remedies.
    tries = path.parts[-2:] in {("tryout", "runs.py"), ("tryout", "forks.py")}
    return in_room or is_pager or reads_ranks or tries


def test_few_rooms_start_processes():
    starts = {"subprocess", "os.system", "os.popen", "multiprocessing", "pty"}
    starting = [path for path in FILES if starts & imports_of(path)]
    assert {room_of(path) for path in starting} >= {"toolchain", "headless", "recorders"}
    assert [path for path in starting if not may_start_processes(path)] == []


def test_only_the_readers_know_the_names_of_a_recorder():
    names = re.compile("CUPTI_ACTIVITY|NVTX_EVENTS|StringIds|TARGET_INFO_|DIAGNOSTIC_EVENT")
    # What reads nsys exports, copies them scrubbed, estimates the memory that they take, and tells
    # the files of other profilers.
    of_nsys = "traces/trace/nsys/"
    readers = (of_nsys, *(f"traces/trace/{name}" for name in ("scrub/", "memory.py", "foreign.py")))
    knowing = [str(path.relative_to(ROOT)) for path in FILES if names.search(path.read_text())]
    assert any(path.startswith(of_nsys) for path in knowing)
    assert [path for path in knowing if not path.startswith(readers)] == []


ANSWERS = sorted((ROOT / "traces" / "analyses").rglob("*.py"))


def test_analyses_import_nothing_that_reads_or_prints():
    outer = {"matplotlib", "pandas", "sqlite3", "pathlib", "io", "rich"}
    modules = {str(path): {m.partition(".")[0] for m in imports_of(path)} for path in ANSWERS}
    assert len(modules) > 20
    assert {name: there & outer for name, there in modules.items() if there & outer} == {}


def test_analyses_call_neither_print_nor_open():
    calls = {
        (path.stem, node.func.id)
        for path in ANSWERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert len(calls) > 100
    assert [call for call in calls if call[1] in {"print", "open"}] == []


def reads_in_any_encoding(call: ast.Call) -> bool:
    """Whether a call of read_text or write_text leaves the encoding to the user's locale."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    texts = {"read_text": 0, "write_text": 1}
    named = any(keyword.arg == "encoding" for keyword in call.keywords)
    return name in texts and len(call.args) <= texts[name] and not named


def test_text_files_are_utf_8_in_every_locale():
    folders = ("traceview", "kernels", "workloads", "benchmarks", "scripts", "examples")
    sources = {
        path: source
        for folder in folders
        for path in (ROOT.parent / folder).rglob("*.py")
        if "_text(" in (source := path.read_text("utf-8"))
    }
    calls = [
        (path, node)
        for path, source in sources.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
    ]
    assert len(sources) > 50
    assert [(path, call.lineno) for path, call in calls if reads_in_any_encoding(call)] == []


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

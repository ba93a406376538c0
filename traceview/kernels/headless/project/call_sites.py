"""Where a project launches a kernel: at a call, in a harness, or in a function that defines it."""

from __future__ import annotations

import ast
import functools
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from traceview.base.records import record

# The expressions that stand for a kernel in a module: `run = kernel`, `TABLE[name]["update"]`.

_MOST_STEPS = 8


class Aliases:
    """The assignments of a module, to trace expressions back to one kernel."""

    def __init__(self, kernel: str, module: ast.Module) -> None:
        self._kernel = kernel
        self._assigned: dict[str, list[ast.expr]] = defaultdict(list)
        self._fields: dict[str, list[ast.expr]] = defaultdict(list)
        for node in ast.walk(module):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._assigned[node.targets[0].id].append(node.value)
            elif isinstance(node, ast.keyword) and node.arg:
                # A field of an object: Implementations(update=kernel).
                self._fields[node.arg].append(node.value)

    def names(self, node: ast.expr, steps: int = _MOST_STEPS) -> bool:
        """Whether an expression can be the kernel: itself, of a module, wrapped, or an alias."""
        if steps == 0:
            return False
        if isinstance(node, ast.Name) and node.id == self._kernel:
            return True
        if isinstance(node, ast.Attribute):
            values = self._fields.get(node.attr, ())
            return node.attr == self._kernel or any(
                isinstance(v, ast.Name) and v.id == self._kernel for v in values
            )
        if isinstance(node, ast.Call):
            return any(self.names(part, steps - 1) for part in node.args)
        return any(self.names(each, steps - 1) for each in self._values(node, steps))

    def _values(self, node: ast.expr, steps: int) -> Iterator[ast.expr]:
        if steps == 0:
            return
        if isinstance(node, ast.Name):
            yield from self._assigned.get(node.id, ())
        elif isinstance(node, ast.IfExp):
            yield from (node.body, node.orelse)
        elif isinstance(node, ast.Subscript):
            for container in self._containers(node.value, steps - 1):
                # The elements of a literal at a key, all of them if the key is not constant.
                if isinstance(container, (ast.List, ast.Tuple)):
                    yield from container.elts
                elif isinstance(container, ast.Dict):
                    wanted = node.slice
                    for key, value in zip(container.keys, container.values, strict=True):
                        constant = all(isinstance(k, ast.Constant) for k in (wanted, key))
                        if not constant or ast.dump(wanted) == ast.dump(key or wanted):
                            yield value

    def _containers(self, node: ast.expr, steps: int) -> Iterator[ast.expr]:
        if isinstance(node, (ast.Dict, ast.List, ast.Tuple)):
            yield node
        else:
            for each in self._values(node, steps):
                if steps:
                    yield from self._containers(each, steps - 1)


_MOST_FILES = 3000
_MOST_BYTES = 2_000_000
_MOST_SITES, _MOST_NEAR = 6, 64
INSTALLED = ("site-packages", "dist-packages", "node_modules")
# How a kernel is launched or compiled with a grid as a keyword.
_LAUNCHING = ("warmup", "run")
_NO_PARAMETERS = {"grid", "num_warps", "num_stages", "num_ctas", "maxnreg", "warmup"}
_FIRST = re.compile(r"(^|[/_])(tests?|bench\w*|examples?)([/_.]|$)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@record
class CallSite:
    """A launch in the source: the call, the function around it and the module around that."""

    file: Path
    module: ast.Module
    function: Function | None
    call: ast.Call

    @property
    def place(self) -> str:
        """File and line, as messages name them."""
        return f"{self.file.name}:{self.call.lineno}"


def call_sites(kernel: str, file: Path, project: Path | None) -> Iterator[CallSite]:
    """The launches of a kernel: in its own file, then in the tests of the project, then elsewhere.

    Its own file comes first, as the function there is what tests call. Another file that defines a
    function of that name launches its own.
    """
    count = 0
    for path in (file, *_others(file, project)):
        for site in _in_file(kernel, path):
            if path != file and _defines(kernel, site.module):
                break
            yield site
            count += 1
            if count == _MOST_SITES:
                return


def _defines(name: str, module: ast.Module) -> bool:
    return any(isinstance(n, ast.FunctionDef) and n.name == name for n in ast.walk(module))


def calls_of(name: str, file: Path, project: Path | None) -> Iterator[CallSite]:
    """The calls of a function by its name, in the order of `call_sites`."""
    for path in (file, *_others(file, project)):
        module = _parsed(name, path)
        for function, call in _calls(module, None) if module else ():
            if ast.unparse(call.func).rpartition(".")[2] == name:
                yield CallSite(path, module or ast.Module([], []), function, call)


# Reading 3,000 files takes about a second, parsing one that has the name up to 0.1 s.
_MOST_SEARCH_S = 2.0


@functools.lru_cache(maxsize=64)
def calls_elsewhere(name: str, file: Path, project: Path | None) -> tuple[CallSite, ...]:
    """The calls of a file's function, or of its class's `apply`, where other files import it.

    Tests come first; the search ends after some calls or two seconds.
    """
    until, found = time.monotonic() + _MOST_SEARCH_S, list[CallSite]()
    folders = file.relative_to(project).parts[:-1] if project and project in file.parents else ()
    of_file = frozenset({file.stem, *folders, project.name if project else ""})
    for path in _others(file, project):
        if len(found) >= _MOST_SITES or time.monotonic() > until:
            break
        module = _parsed(name, path)
        imported = _imported(module, of_file) if module else set()
        for function, call in _calls(module, None) if module and imported else ():
            called = ast.unparse(call.func).removesuffix(".apply")
            if called.rpartition(".")[2] == name and called.partition(".")[0] in imported:
                found.append(CallSite(path, module or ast.Module([], []), function, call))
    return tuple(found[:_MOST_SITES])


@functools.lru_cache(maxsize=256)
def default_of(name: str, file: Path, project: Path | None) -> int | None:
    """The integer that most functions of a project have as the default of a parameter; or None.

    They are those of the files near its own.
    """
    found, root = list[int](), project or file.parent
    others = _others(file, project)
    near = [each for each in others if not _FIRST.search(str(each.relative_to(root)))]
    for path in (file, *near[:_MOST_NEAR]):
        module = _parsed(name, path)
        for of in (n for n in ast.walk(module or ast.Module([], [])) if isinstance(n, Function)):
            last = [*of.args.posonlyargs, *of.args.args][::-1]
            pairs: list[tuple[ast.arg, ast.expr | None]] = []
            pairs += zip(last, of.args.defaults[::-1], strict=False)
            pairs += zip(of.args.kwonlyargs, of.args.kw_defaults, strict=True)
            values = (d.value for a, d in pairs if a.arg == name and isinstance(d, ast.Constant))
            found += [each for each in values if type(each) is int and each > 0]
    return Counter(found).most_common(1)[0][0] if found else None


def _imported(module: ast.Module, of_file: frozenset[str]) -> set[str]:
    """The names that a module imports from modules which are named as a file or its folders."""
    names = set[str]()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            own = (each for each in node.names if of_file.intersection(each.name.split(".")))
            names |= {each.asname or each.name.partition(".")[0] for each in own}
        elif isinstance(node, ast.ImportFrom):
            whole = node.level or of_file.intersection((node.module or "").split("."))
            listed = (each for each in node.names if whole or each.name in of_file)
            names |= {each.asname or each.name for each in listed}
    return names


@functools.lru_cache(maxsize=4)
def _others(file: Path, project: Path | None) -> list[Path]:
    """The other files of the project: tests and benchmarks first, then those near the kernel.

    Without a project they are those of the file's folder, with the tests in it.
    """
    root = file.parent if project is None else project
    files = list(islice(_sources(root, is_project=project is not None), _MOST_FILES))

    def order(path: Path) -> tuple[bool, int, str]:
        text = str(path.relative_to(root))
        pairs = zip(path.parts, file.parts, strict=False)
        near = sum(1 for _ in takewhile(lambda parts: parts[0] == parts[1], pairs))
        return not _FIRST.search(text), -near, text

    return [path for path in sorted(files, key=order) if path != file]


def _sources(root: Path, *, is_project: bool) -> Iterator[Path]:
    """The Python files of a project, without what is installed or hidden in its folders."""
    for folder, below, names in os.walk(root):
        listed = (each for each in below if each[0] != "." and each not in INSTALLED)
        below[:] = sorted(each for each in listed if is_project or _FIRST.search(each))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def _parsed(name: str, path: Path) -> ast.Module | None:
    """A file that has a name; None where it has not, or cannot be read."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        raw = path.read_bytes()
        # Parsing is what takes long.
        if not re.search(rb"(?<![A-Za-z0-9_])%s(?![A-Za-z0-9_])" % re.escape(name.encode()), raw):
            return None
        return ast.parse(raw)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def _in_file(kernel: str, path: Path) -> Iterator[CallSite]:
    module = _parsed(kernel, path)
    if module is None:
        return
    aliases, by_name = Aliases(kernel, module), False
    calls = list(_calls(module, None))
    for function, call in calls:
        launched = call.func
        by_grid = isinstance(launched, ast.Attribute) and launched.attr in _LAUNCHING
        is_launch = by_grid or isinstance(launched, ast.Subscript)
        if is_launch and aliases.names(launched.value):  # type: ignore[attr-defined]
            by_name = True
            yield CallSite(path, module, function, call)
    if not by_name:
        yield from (CallSite(path, module, *each) for each in _unnamed(kernel, module, calls))


def _unnamed(
    kernel: str, module: ast.Module, calls: Sequence[tuple[Function | None, ast.Call]]
) -> Iterator[tuple[Function | None, ast.Call]]:
    """The launches `run[grid](…)` whose arguments fit this kernel alone of those of the module.

    `run` may be returned by a function or looked up, such as in a cache of kernels.
    """
    nodes = (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef))
    kernels = {n.name: n for n in nodes if any("jit" in ast.unparse(d) for d in n.decorator_list)}
    for function, call in calls:
        named = {n.id for n in ast.walk(call.func) if isinstance(n, ast.Name)}
        if isinstance(call.func, ast.Subscript) and named.isdisjoint(kernels):
            fitting = [name for name, node in kernels.items() if _fits(call, node)]
            if fitting == [kernel]:
                yield function, call


def _fits(call: ast.Call, kernel: ast.FunctionDef) -> bool:
    """Whether a launch passes exactly the parameters of a kernel, or all but what is tuned."""
    if any(isinstance(a, ast.Starred) for a in call.args) or not all(k.arg for k in call.keywords):
        return False
    arguments = kernel.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    passed = {*names[: len(call.args)], *(str(k.arg) for k in call.keywords)} - _NO_PARAMETERS
    required = names[: len(names) - len(arguments.defaults)]
    tuned = ("autotune", "heuristics")
    if any(word in ast.unparse(d) for d in kernel.decorator_list for word in tuned):
        required = required[: len(call.args)]
    return len(call.args) <= len(names) and passed <= {*names} and passed >= {*required}


def _calls(node: ast.AST, function: Function | None) -> Iterator[tuple[Function | None, ast.Call]]:
    """The calls in a tree, each with the innermost function around it that is not a lambda."""
    for child in ast.iter_child_nodes(node):
        inside = child if isinstance(child, Function) else function
        if isinstance(child, ast.Call):
            yield inside, child
        yield from _calls(child, inside)


# Files whose kernels are launched by an external harness, and the call that it makes.
#
# A file in the form of KernelBench defines `ModelNew` (or `Model`), `get_inputs` and
# `get_init_inputs`. The graph of a model that Inductor (torch.compile) has generated defines
# `call` and, to be timed, `get_args` or `benchmark_compiled_module`.

_MODELS = ("ModelNew", "Model")


@record
class Harness:
    """A call as text, the harness that makes it (`owner`), and a function that makes it."""

    text: str
    owner: str
    call: Callable[[], object]


def harness_of(names: Mapping[str, Any]) -> Harness | None:
    """The harness of a file with these names; None where no form is known."""
    return _of_model(names) or _of_graph(names)


def _of_model(names: Mapping[str, Any]) -> Harness | None:
    model = next((name for name in _MODELS if isinstance(names.get(name), type)), None)
    if model is None or not callable(names.get("get_inputs")):
        return None
    given = "*get_init_inputs()" if callable(names.get("get_init_inputs")) else ""

    def call() -> object:
        settings = names["get_init_inputs"]() if given else ()
        built = names[model](**settings) if isinstance(settings, dict) else names[model](*settings)
        inputs = [_on_gpu(each) for each in names["get_inputs"]()]
        return _on_gpu(built)(*inputs)

    return Harness(f"{model}({given})(*get_inputs())", "KernelBench", call)


def _of_graph(names: Mapping[str, Any]) -> Harness | None:
    call, arguments = names.get("call"), names.get("get_args")
    timed = names.get("benchmark_compiled_module")
    if not callable(call) or not callable(timed):
        return None
    if callable(arguments):
        return Harness("call(get_args())", "Inductor", lambda: call(arguments()))
    text = "benchmark_compiled_module(times=1, repeat=1)"
    return Harness(text, "Inductor", lambda: timed(times=1, repeat=1))


def _on_gpu(value: Any) -> Any:
    with suppress(AttributeError):
        return value.cuda()
    return value


# The condition under which a file defines a function.


def condition_of(file: str, name: str) -> str:
    """The innermost `if` around a definition, as a clause; empty where there is none."""
    try:
        module = ast.parse(Path(file).read_bytes())
    except (OSError, ValueError, SyntaxError):
        return ""
    for function, condition in _definitions(module, None):
        if function.name == name and condition:
            test = ast.unparse(condition.test)
            return f"line {function.lineno} defines it under `if {test}` (line {condition.lineno})"
    return ""


def _definitions(
    node: ast.AST, condition: ast.If | None
) -> Iterator[tuple[ast.FunctionDef, ast.If | None]]:
    """The functions of a module, each with the innermost `if` around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield child, condition
        elif isinstance(child, ast.If):
            yield from _definitions(child, child)

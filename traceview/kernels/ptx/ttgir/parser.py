"""Parse TTGIR, Triton's code with layouts: operations, types, layouts, source lines.

One line of text is one operation; a region opens with a line that ends in `{`. Operations that are
not understood keep their name and operands.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from traceview.base.records import record
from traceview.kernels.ptx.loops import reached
from traceview.kernels.ptx.model import SourceLine, source_path

_LOCATION = re.compile(r"^#loc(?P<name>\d*) = loc\((?P<text>.*)\)$", re.MULTILINE)
_FILE_LINE = re.compile(r'^"(?P<file>[^"]*)":(?P<line>\d+):\d+$')
_NAMED = re.compile(r'^"(?P<name>[^"]*)"\(#loc(?P<of>\d*)\)$')
_CALL = re.compile(r"^callsite\(.* at #loc(?P<caller>\d*)\)$")
_END_LOCATION = re.compile(r"\s*loc\(#loc(\d*)\)\s*$")
_LAYOUT = re.compile(r"^#(?P<name>\w+) = (?P<text>#\w[\w.]*<\{.*\}>)$", re.MULTILINE)
_OPERATION = re.compile(
    r'^\s*(?:(?P<results>%[\w:#-]+(?:\s*,\s*%[\w:#-]+)*) = )?"?(?P<name>[a-z]\w*\.[\w.]+)"?'
    r"(?P<rest>.*)$"
)
# A constant may be called %c-1_i32.
_VALUE = re.compile(r"%\w+(?:-\d\w*)?(?:\.\d+)?(?:#\d+)?")
_ARGUMENT = re.compile(
    r"(?P<name>%\w+): (?P<type>[^\s{,]+(?:<[^{]*>)?)\s*(?:\{(?P<attributes>[^}]*)\})?"
)
_NUMBER_ATTRIBUTE = re.compile(r"tt\.(\w+) = (?:dense<\[?)?(\d+(?:, \d+)*)")
_FUNCTION = re.compile(r"tt\.func public @\S+?\((?P<arguments>.*)\)\s*(?:attributes .*)?\{")
_FIRST_OF_TWO = re.compile(r"(.*?), (?:tensor<|i\d+)")
_FOR = re.compile(
    r"\s*(?P<variable>%\w+) = (?P<bounds>%[\w#-]+ to %[\w#-]+ step %[\w#-]+)"
    r"(?:\s*iter_args\((?P<carried>.*?)\))?(?P<rest>.*)$"
)
_CARRIED = re.compile(r"(%\w+) = (%[\w#-]+)")
_WARPS = re.compile(r'"ttg\.num-warps" = (\d{1,3})')
_SHAPE = re.compile(r"tensor<((?:\d+x)+)")


@record
class IrOperation:
    """One operation. `rest` is its text after the name, `type` the type of its last result.

    `inputs` are its operands in order. `line` is the user's line, `name` the variable assigned
    there.
    """

    opcode: str
    results: tuple[str, ...]
    inputs: tuple[str, ...]
    rest: str
    type: str
    line: SourceLine | None
    name: str | None
    depth: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its type; empty for a scalar."""
        return shape_of(self.type)

    @property
    def type_of_inputs(self) -> str:
        """The type of its first operand, which is before the arrow; empty without an arrow."""
        before, arrow, _ = self.rest.rpartition(" -> ")
        types = before.rpartition(" : ")[2].strip("( )")
        return types.partition(", tensor<")[0] if arrow else ""


@record
class IrParameter:
    """A kernel parameter with the hints that it was compiled with, such as divisibility."""

    name: str
    type: str
    hints: Mapping[str, int]


@record
class IrModule:
    """A parsed module: its operations in order, its parameters, and its layouts by name.

    `num_warps` is None where the module does not give it.
    """

    operations: tuple[IrOperation, ...]
    parameters: tuple[IrParameter, ...]
    layouts: Mapping[str, str] = field(repr=False)
    num_warps: int | None = None

    @cached_property
    def makers(self) -> Mapping[str, IrOperation]:
        """The operation that makes each value."""
        return {result: op for op in self.operations for result in op.results}

    @cached_property
    def users(self) -> Mapping[str, Sequence[IrOperation]]:
        """The operations that take each value, in order."""
        users: dict[str, list[IrOperation]] = defaultdict(list)
        for op in self.operations:
            for value in op.inputs:
                users[value].append(op)
        return users

    def nested(self) -> Iterator[tuple[IrOperation, list[IrOperation]]]:
        """Each operation with the regions around it, the outermost first."""
        regions: list[IrOperation] = []
        for op in self.operations:
            while regions and op.depth <= regions[-1].depth:
                regions.pop()
            yield op, list(regions)
            if op.opcode.startswith("scf."):
                regions.append(op)

    def origins(self, values: Iterable[str], *ends: str) -> Iterator[IrOperation]:
        """The operations that values are computed from, back to those whose opcodes are `ends`."""

        def inputs(value: str) -> Sequence[str]:
            maker = self.makers.get(value)
            return maker.inputs if maker and maker.opcode not in ends else ()

        makers = (self.makers.get(value) for value in reached(values, inputs))
        return filter(None, makers)


def shape_of(type_: str) -> tuple[int, ...]:
    """The shape of a tensor type; empty for a scalar."""
    shape = _SHAPE.search(type_)
    return tuple(int(size) for size in shape[1].rstrip("x").split("x")) if shape else ()


def parse_ttgir(text: str) -> IrModule:
    """Parse a module; lines that are not operations are skipped."""
    places = Places({match["name"]: match["text"] for match in _LOCATION.finditer(text)})
    layouts = {match["name"]: match["text"] for match in _LAYOUT.finditer(text)}
    function = _FUNCTION.search(text)
    parameters = tuple(_parameters(function["arguments"])) if function else ()
    body = text[function.end() :] if function else text
    scopes, listed = _Scopes(), list[IrOperation]()
    # Indices of the operations whose regions are open; None for other braces.
    around: list[int | None] = []
    for line in body.splitlines():
        at = None
        if line.lstrip().startswith("}"):
            scopes.leave()
            at = around.pop() if around else None
            if at is not None:
                listed[at] = _closed(listed[at], line, places)
        match = _OPERATION.match(line)
        opens = line.rstrip().endswith("{")
        if match:
            listed.append(_operation(match, places, scopes, opens))
        elif opens:
            scopes.enter()
        if opens:
            around.append(len(listed) - 1 if match else at)
    warps = _WARPS.search(text)
    return IrModule(tuple(listed), parameters, layouts, int(warps[1]) if warps else None)


class Places:
    """Locations by name: the outermost line of a call chain, and the variable's name."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def line(self, name: str) -> SourceLine | None:
        for _ in range(len(self._texts)):
            text = self._texts.get(name, "")
            match = _FILE_LINE.match(text)
            if match:
                return SourceLine(source_path(match["file"]), int(match["line"]))
            inner = _CALL.match(text) or _NAMED.match(text)
            if inner is None:
                return None
            name = inner[inner.lastindex or 0]
        return None

    def variable(self, name: str) -> str | None:
        match = _NAMED.match(self._texts.get(name, ""))
        return match["name"] if match else None


def _parameters(text: str) -> Iterator[IrParameter]:
    for match in _ARGUMENT.finditer(text):
        hints = {
            name: int(numbers.split(",")[0])
            for name, numbers in _NUMBER_ATTRIBUTE.findall(match["attributes"] or "")
        }
        yield IrParameter(match["name"], match["type"].strip(), hints)


class _Scopes:
    """Makes names unique: regions beside each other may use one name for several values."""

    def __init__(self) -> None:
        self._open: list[dict[str, str]] = [{}]
        self._used = Counter[str]()

    @property
    def depth(self) -> int:
        return len(self._open) - 1

    def enter(self) -> None:
        self._open.append({})

    def leave(self) -> None:
        if len(self._open) > 1:
            self._open.pop()

    def pop(self) -> dict[str, str]:
        return self._open.pop()

    def push(self, scope: dict[str, str]) -> None:
        self._open.append(scope)

    def define(self, name: str) -> None:
        self._used[name] += 1
        count = self._used[name]
        self._open[-1][name] = name if count == 1 else f"{name}.{count}"

    def resolve(self, text: str) -> str:
        return _VALUE.sub(lambda match: self._of(match[0]), text)

    def _of(self, name: str) -> str:
        base, _, at = name.partition("#")
        for scope in reversed(self._open):
            if base in scope:
                return f"{scope[base]}#{at}" if at else scope[base]
        return name


def _closed(op: IrOperation, end: str, places: Places) -> IrOperation:
    """An operation completed by the types and the location that follow its regions."""
    location = _END_LOCATION.search(end)
    types = end[: location.start()] if location else end
    _, colon, types = types.partition(" : ")
    return replace(
        op,
        rest=f"{op.rest} : {types}" if colon else op.rest,
        type=_result_type(op.opcode, types) if colon else op.type,
        line=places.line(location[1]) if location else op.line,
        name=places.variable(location[1]) if location else op.name,
    )


def _resolved(rest: str, scopes: _Scopes, opens: bool) -> str:
    """The operands with unique names; the names that a loop defines exist only inside it."""
    loop = _FOR.match(rest) if opens else None
    if loop is None:
        text = scopes.resolve(rest)
        if opens:
            scopes.enter()
        return text
    values = scopes.resolve(loop["bounds"])
    starts = [
        (name, scopes.resolve(start)) for name, start in _CARRIED.findall(loop["carried"] or "")
    ]
    scopes.enter()
    for name in (loop["variable"], *(name for name, _ in starts)):
        scopes.define(name)
    carried = ", ".join(f"{scopes.resolve(name)} = {start}" for name, start in starts)
    return f" {scopes.resolve(loop['variable'])} = {values} iter_args({carried}) {loop['rest']}"


def _operation(match: re.Match[str], places: Places, scopes: _Scopes, opens: bool) -> IrOperation:
    rest = match["rest"]
    location = _END_LOCATION.search(rest)
    rest = rest[: location.start()] if location else rest
    at = location[1] if location else None
    depth = scopes.depth
    outside = list(_results(match["results"] or ""))
    rest = _resolved(rest, scopes, opens)
    # Unique names of results, which belong to the region around those an operation opens.
    bases = dict.fromkeys(name.partition("#")[0] for name in outside)
    inner = scopes.pop() if opens else None
    for base in bases:
        scopes.define(base)
    results = tuple(scopes.resolve(name) for name in outside)
    if inner is not None:
        scopes.push(inner)
    head, _, types = rest.rpartition(" : ")
    return IrOperation(
        match["name"],
        results,
        tuple(_VALUE.findall(head or rest)),
        rest,
        _result_type(match["name"], types),
        places.line(at) if at is not None else None,
        places.variable(at) if at is not None else None,
        depth,
    )


def _result_type(opcode: str, types: str) -> str:
    """The type of the result; without an arrow, that of the first operand."""
    if "->" in types:
        return types.rpartition("->")[2].strip()
    several = _FIRST_OF_TWO.match(types) if opcode in ("tt.addptr", "ttg.async_copy") else None
    return (several[1] if several else types).strip()


def _results(text: str) -> Iterator[str]:
    """The names of results; `%c:2` stands for %c#0 and %c#1."""
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, _, count = each.partition(":")
        if count:
            yield from (f"{name}#{at}" for at in range(int(count)))
        else:
            yield name


# The user's variables that the lines of a kernel assign, as TTGIR names them.


def variables_by_line(module: IrModule) -> Mapping[SourceLine, str]:
    """The variable of each line that names exactly one; a `for` carries several."""
    names: dict[SourceLine, set[str]] = defaultdict(set)
    for op in module.operations:
        if op.line and op.name:
            names[op.line].add(op.name)
    return {line: min(each) for line, each in names.items() if len(each) == 1}

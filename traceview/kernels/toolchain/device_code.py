"""CUDA C++ without the host code that does not compile, such as for want of its libraries."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from zlib import crc32

from traceview.base.records import record

_HIDDEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'"""
    r"|^[ \t]*\#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_OPENS = re.compile(r"\s*(?:(?:inline\s+)?namespace\b[\w\s:]*|extern\s*)")
_TYPE = re.compile(
    r"\s*(?:template\s*<[^;{}]*>\s*)?(?:typedef\s+|static\s+|const\s+)*(?:struct|class|union|enum)\b"
)
_OF_DEVICE = re.compile(r"__(?:global|device|constant|managed)__")
_KERNEL = re.compile(
    r"__global__\b(?:[^(){};]|\([^(){};]*\))*?\b(?!__launch_bounds__)(\w+)\s*\(", re.DOTALL
)
_TEMPLATE = re.compile(r"\s*template\s*<[^;{}]*?\b(\w+)\s*\([^;{}]*\)\s*\{", re.DOTALL)
_NAMED = re.compile(
    r"\b(?:(?:const|constexpr|static)\s+)+(?:\w+\s+)*?(\w+)\s*=\s*([^;{}]+);|\busing\s+(\w+)\s*=\s*([^;]+);"
)
_OF_TENSORS = re.compile(
    r"\b(?:torch|at)::Tensor\b|\bAT_DISPATCH_|\bTORCH_(?:CHECK|LIBRARY)|\bPYBIND11_MODULE\b"
)
# The type of a tensor in PyTorch's macros, which choose it by data.
SCALAR = "scalar_t"
_KEPT, _KEPT_FUNCTION = "traceview-kept-", "inline void traceview_kept_"
_MOST_ROUNDS = 8
NVIDIA_ERROR = re.compile(
    r"^(?P<place>.*?\(\d+\)|nvrtc): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$"
)
GCC_ERROR = re.compile(r"^(?P<place>.*?:\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$")
# A message of nvcc, with the file and the instantiations that it is about.
_SAYINGS = re.compile(
    r"^(?=\S+\(\d+\): (error|warning|remark))(.*(?:\n(?!\S+\(\d+\): (?:error|warning|remark)).*)*)",
    re.MULTILINE,
)
_INSTANTIATED = re.compile(r'instantiation of "\S+ (?:\w+::)*(\w+)[<(].*\[with \w+=([\w:]+)')
_KEPT_USE = re.compile(rf"{_KEPT_FUNCTION}(\d+)\(\) (.*)")
NO_HEADER = re.compile(r"(?P<header>[\w./+-]+): No such file or directory")


@record
class DeviceCode:
    """A source with some of its host code left out, whose uses of templates are kept.

    `wanted` is a use of a template that the source need not have, such as `kernel<float>`.
    `templates` are those of a header whose uses are kept like those of the source's own.
    """

    path: str
    text: str
    dropped: frozenset[tuple[int, int]] = frozenset()
    refused: frozenset[str] = frozenset()
    wanted: str = ""
    templates: frozenset[str] = frozenset()

    def without_tensors(self) -> DeviceCode:
        """The source without the host code that knows PyTorch's tensors."""
        code = _masked(self.text)
        host = (each for each in _items(code) if not _OF_DEVICE.search(code, *each))
        dropped = frozenset(each for each in host if _OF_TENSORS.search(code, *each))
        return replace(self, dropped=self.dropped | dropped)

    def without(self, errors: Collection[tuple[str, int]]) -> DeviceCode | None:
        """The source without the declarations at the lines of errors.

        None if one is of code for the GPU, or of no declaration.
        """
        code = _masked(self.text)
        lines = {line for file, line in errors if file == self.path}
        wrong = {each for each in _items(code) if lines.intersection(_lines(code, *each))}
        if bool(lines) != bool(wrong) or any(_OF_DEVICE.search(code, *each) for each in wrong):
            return None
        return replace(self, dropped=self.dropped | wrong)

    def with_one_kernel(self, name: str) -> DeviceCode:
        """The source, with its lines, in which kernels of other names do nothing."""
        text, code, parts, at = self.text, _masked(self.text), list[str](), 0
        items = [(_KERNEL.search(code, *each), each[1]) for each in _items(code)]
        kernels = [(found, end) for found, end in items if found]
        for found, end in kernels if any(m[1] == name for m, _ in kernels) else ():
            body = code.find("{", found.end(), end) + 1
            if body and found[1] != name:
                parts += [text[at:body], _blank(text, body, end - 1)]
                at = end - 1
        return replace(self, text="".join([*parts, text[at:]]))

    def written(self) -> str:
        """The text to compile: lines and names of files in errors are those of the source."""
        code, parts, at = _masked(self.text), [f'#line 1 "{self.path}"\n'], 0
        for start, end in _items(code) if self.dropped else ():
            is_dropped, whole = (start, end) in self.dropped, code[start:end]
            if not is_dropped and (_OF_DEVICE.search(whole) or not _TEMPLATE.match(whole)):
                continue
            blank = _blank(self.text, start, end) if is_dropped else self.text[start:end]
            parts += [self.text[at:start], blank]
            line = self.text.count("\n", 0, end) + 1
            parts += self._kept(_uses(whole, code, self.templates | _templates(code)), line)
            at = end
        wanted = [f"{{ auto kept = &{self.wanted}; (void)kept; }}"] if self.wanted else []
        last = self.text.count("\n") + 2
        return "".join([*parts, self.text[at:], *self._kept(wanted, last)])

    def _kept(self, bodies: Iterable[str], line: int) -> Iterator[str]:
        """Functions that nvcc has not refused, and where the source goes on behind them."""
        for body in dict.fromkeys(bodies):
            name = f"{_KEPT}{crc32(f'{line} {body}'.encode())}"
            if name not in self.refused:
                function = f"{_KEPT_FUNCTION}{name.removeprefix(_KEPT)}() {body}"
                yield f'\n#line 1 "{name}"\n{function}\n'
                yield f'#line {line} "{self.path}"\n'


def kernels_in(path: Path) -> set[str]:
    """The names of the kernels that a source defines."""
    code = _masked(path.read_text("utf-8", "surrogateescape"))
    return {m[1] for each in _items(code) if (m := _KERNEL.search(code, *each))}


class Copies:
    """Copies of a source and its headers without host code, and stand-ins for missing headers."""

    def __init__(self, source: Path, folder: Path, project: Path) -> None:
        self.codes = dict[str, DeviceCode]()
        self._rounds = 0
        self._source, self._folder, self._project = source, folder / "copies", project
        # A missing `../../name.h` has a place below the folder, too.
        self._headers = folder / "headers/of/a/project"
        self._headers.mkdir(parents=True)

    def flags(self, flags: Sequence[str]) -> list[str]:
        """Write the copies; the flags of nvcc that compile them, for those of the source."""
        for name, code in self.codes.items():
            _write(self._copy(name), code.written())
        first = [f"-I{self._copy(each[2:])}" for each in flags if each.startswith("-I/")]
        beside = {str(Path(name).parent): None for name in self.codes}
        source = str(self._source)
        copied = [str(self._copy(each)) if each == source else each for each in flags]
        # With -I a `time.h` there would take the place of the system's.
        quoted = [f"-Xcompiler=-iquote{each}" for each in beside]
        stand_ins = [f"-I{self._headers}"]
        return [*first, *stand_ins, *(copied if source in self.codes else flags), *quoted]

    def stand_in(self, header: str, text: str = "") -> bool:
        """Write a header that is missing; False if it is there, or has no place."""
        place = Path(os.path.normpath(self._headers / header))
        if place.exists() or self._headers.parents[2] not in place.parents:
            return False
        _write(place, text)
        return True

    def take(self, code: DeviceCode) -> None:
        self.codes[code.path] = code

    def drop(self, log: str, flags: Sequence[str]) -> bool:
        """Leave out the declarations with the errors in a log; False if they are for the GPU.

        Headers of the project lose host code as well.
        """
        codes = self.codes
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            return False
        # Uses of templates that are guessed wrong, and what is instantiated for them.
        errors = "\n".join(text for kind, text in _SAYINGS.findall(log) if kind == "error")
        made = {(m[1], m[2].removeprefix("__")) for m in _INSTANTIATED.finditer(errors)}
        kept = _KEPT_USE.findall("\n".join(code.written() for code in codes.values()))
        wrong = {n for n, use in kept for name, of in made if f"{name}<" in use and of in use}
        wrong.update(re.findall(rf"{_KEPT}(\d+)", errors))
        if refused := {f"{_KEPT}{number}" for number in wrong}:
            self.codes = {n: replace(c, refused=c.refused | refused) for n, c in codes.items()}
            return codes != self.codes
        roots = [self._project, *(Path(each[2:]) for each in flags if each.startswith("-I"))]
        # What else is wrong, such as in the system's headers, may be so for want of what is here.
        places = [
            (file, line)
            for file, line in _places(log)
            if file in codes or _is_below(Path(file), roots)
        ]
        codes = {file: _read(Path(file)) for file, _ in places} | codes
        codes.setdefault(str(self._source), self.of_source())
        changed = {name: code.without(places) for name, code in codes.items()}
        if None in changed.values() or changed == codes:
            return False
        self.codes = {name: code for name, code in changed.items() if code}
        return True

    def of_source(self) -> DeviceCode:
        return self.codes.get(str(self._source)) or _read(self._source)

    @property
    def has_dropped(self) -> bool:
        return any(code.dropped for code in self.codes.values())

    def guessed(self) -> list[str]:
        """What the type that PyTorch's macros choose by data is taken as."""
        texts = (code.written() for code in self.codes.values())
        found = re.findall(rf"{_KEPT_FUNCTION}.* using {SCALAR} = ([\w:]+);", "\n".join(texts))
        return list(dict.fromkeys(found))

    def _copy(self, name: str) -> Path:
        return Path(f"{self._folder}{name}")


def _is_below(file: Path, roots: Sequence[Path]) -> bool:
    return file.is_file() and any(root in file.parents for root in roots)


def _read(path: Path) -> DeviceCode:
    return DeviceCode(str(path), path.read_text("utf-8", "surrogateescape"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8", "surrogateescape")


def _places(log: str) -> list[tuple[str, int]]:
    """The files and lines of the errors of nvcc in a log."""
    errors = filter(None, map(NVIDIA_ERROR.match, log.splitlines()))
    matches = (re.fullmatch(r"(.*)\((\d+)\)", error["place"]) for error in errors)
    return [(m[1], int(m[2])) for m in matches if m]


def _masked(text: str) -> str:
    """The source with comments, texts and directives as blanks."""
    return _HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _blank(text: str, start: int, end: int) -> str:
    """A part of a text as blanks, but for its lines and directives."""
    blank = re.sub(r"[^\n]", " ", text[start:end])
    for found in _HIDDEN.finditer(text, start, end):
        if found[0].lstrip().startswith("#") and "pragma" not in found[0]:
            first, last = found.start() - start, found.end() - start
            blank = blank[:first] + found[0] + blank[last:]
    return blank


def _items(code: str) -> Iterator[tuple[int, int]]:
    """The places of the declarations and definitions in a file and its namespaces."""
    start = braces = parentheses = 0
    head = ""
    for found in re.finditer(r"[(){};]", code):
        at, mark = found.start(), found[0]
        if mark in "()":
            parentheses += 1 if mark == "(" else -1
        elif mark == "{":
            if not braces and _OPENS.fullmatch(code, start, at):
                start = at + 1
                continue
            head = head if braces else code[start:at]
            braces += 1
        elif mark == "}":
            braces -= 1
            if braces < 0:
                start, braces = at + 1, 0
            elif not braces and not parentheses and _is_function(head, code[at + 1 : at + 80]):
                yield start, at + 1
                start = at + 1
        elif not braces and not parentheses:
            yield start, at + 1
            start = at + 1


def _is_function(head: str, behind: str) -> bool:
    """Whether what is before a block and behind it makes it a function's, not a type or a value."""
    ends = behind.lstrip()[:1] not in ("{", ",")
    return ends and "(" in head and not head.rstrip().endswith("=") and not _TYPE.match(head)


def _lines(code: str, start: int, end: int) -> range:
    """The numbers of the lines of a declaration, without the blanks before it."""
    start += len(code[start:end]) - len(code[start:end].lstrip())
    first = code.count("\n", 0, start) + 1
    return range(first, first + code.count("\n", start, end) + 1)


def templates_in(path: Path) -> frozenset[str]:
    """The names of the templates of functions that a source defines."""
    return _templates(_masked(path.read_text("utf-8", "surrogateescape")))


def _templates(code: str) -> frozenset[str]:
    return frozenset(m[1] for each in _items(code) if (m := _TEMPLATE.match(code, *each)))


def _uses(item: str, code: str, templates: Collection[str]) -> Iterator[str]:
    """The bodies of functions that use templates as a declaration does, which is to be left out.

    A template that is left out itself does so once for each of its uses in `code`.
    """
    named = {
        m[1] or m[3]: (m[2], f"constexpr auto {m[1]} = {m[2]}; ")
        if m[1]
        else (m[4], f"using {m[3]} = {m[4]}; ")
        for m in reversed(list(_NAMED.finditer(item)))
    }
    scalars = _scalars(item, code)
    uses = {
        item[at:end]: None
        for at, end, name in _templates_used(item)
        if name in templates or item[end:].lstrip().startswith("<<<")
    }
    for use, given in product(uses, _given(item, code)):
        meant = _meant(use, named | given)
        is_open = SCALAR in re.findall(r"\w+", meant + use) and f"using {SCALAR} " not in meant
        for scalar in scalars if is_open else [""]:
            chosen = f"using {SCALAR} = {scalar}; " if scalar else ""
            yield f"{{ {chosen}{meant}auto kept = &{use}; (void)kept; }}"


def _scalars(item: str, code: str) -> list[str]:
    """Types that the macros in a declaration choose by data; none where they name each."""
    macros = " ".join(re.findall(r"\w*DISPATCH\w*", item))
    half = "c10::Half" if re.search("Half|HALF", item) else "half"
    if "INTEGRAL" in macros:
        return ["int"]
    if re.search("REDUCED_FLOATING|DISPATCH_HALF", macros):
        return ["c10::Half" if "REDUCED" in macros else half]
    if "DISPATCH_CASE" in macros:
        return []
    return ["float", half] if re.search(r"(?i)\bhalf\b|_HALF\b", code) else ["float"]


def _given(item: str, code: str) -> list[dict[str, tuple[str, str]]]:
    """What the parameters of a template are at its uses: their values and declarations."""
    template = _TEMPLATE.match(item)
    if not template:
        return [{}]
    first = item.index("<", template.start()) + 1
    parameters = split(item[first : _closed(item, first)])
    given = list[dict[str, tuple[str, str]]]()
    for at, end, name in _templates_used(code) if template else ():
        if name == template[1]:
            values = split(code[code.index("<", at) + 1 : end - 1])
            pairs = zip(parameters, values, strict=False)
            given.append(dict(_parameter(each, value) for each, value in pairs))
    return given or [{}]


def _parameter(declared: str, value: str) -> tuple[str, tuple[str, str]]:
    words = re.findall(r"\w+", declared.partition("=")[0]) or [""]
    if words[0] in ("typename", "class"):
        return words[-1], (value, f"using {words[-1]} = {value}; ")
    return words[-1], (value, f"constexpr auto {words[-1]} = {value}; ")


def split(arguments: str) -> list[str]:
    """The arguments of a template, apart."""
    parts, depth = [""], 0
    for mark in arguments:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(mark, 0)
        parts = [*parts, ""] if mark == "," and not depth else [*parts[:-1], parts[-1] + mark]
    return [part.strip() for part in parts]


def _templates_used(code: str) -> Iterator[tuple[int, int, str]]:
    """The places of the names of templates with their arguments, and the names alone."""
    for found in re.finditer(r"(?<![\w:])(?:\w+::)*(\w+)\s*<(?!<)", code):
        if (end := _closed(code, found.end())) is not None:
            yield found.start(), end + 1, found[1]


def _meant(use: str, named: dict[str, tuple[str, str]]) -> str:
    """The declarations of the constants and types that the arguments of a template name."""
    words, declared = re.findall(r"\w+", use), dict[str, str]()
    for word in words:
        value, declaration = named.get(word, ("", ""))
        values = re.findall(r"\w+", value)
        if values and word not in [*declared, *values]:
            declared[word] = declaration
            words += values
    return "".join(reversed(declared.values()))


def _closed(code: str, at: int) -> int | None:
    """The place of the `>` that closes the arguments which begin at `at`."""
    angles, parentheses = 1, 0
    for found in re.finditer(r"[<>();{}]", code[at : at + 400]):
        if found[0] in ";{}":
            return None
        parentheses += {"(": 1, ")": -1}.get(found[0], 0)
        angles += {"<": 1, ">": -1}.get(found[0], 0) if not parentheses else 0
        if not angles:
            return at + found.start()
    return None

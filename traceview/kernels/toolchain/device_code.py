"""CUDA C++ without the host code that does not compile, such as for want of its libraries."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from pathlib import Path

from traceview.base.records import record
from traceview.kernels.toolchain import tools

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
# The type of a tensor in PyTorch's macros, which choose it by data.
_SCALAR = "scalar_t"
_KEPT = "traceview-kept-"
_MOST_ROUNDS = 8
NVIDIA_ERROR = re.compile(
    r"^(?P<place>.*?\(\d+\)|nvrtc): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$"
)
GCC_ERROR = re.compile(r"^(?P<place>.*?:\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$")
NO_HEADER = re.compile(r"(?P<header>[\w./+-]+): No such file or directory")


@record
class DeviceCode:
    """A source with some of its host code left out; `kept` are its own uses of templates."""

    path: str
    text: str
    dropped: frozenset[tuple[int, int]] = frozenset()
    refused: frozenset[str] = frozenset()

    def without(self, errors: Collection[tuple[str, int]]) -> DeviceCode | None:
        """The source without the declarations at the lines of errors.

        None if one is of code for the GPU, or of no declaration.
        """
        code = _masked(self.text)
        refused = self.refused.union(file for file, _ in errors if file.startswith(_KEPT))
        lines = {line for file, line in errors if file == self.path}
        wrong = {each for each in _items(code) if lines.intersection(_lines(code, *each))}
        if bool(lines) != bool(wrong) or any(_OF_DEVICE.search(code, *each) for each in wrong):
            return None
        return DeviceCode(self.path, self.text, self.dropped | wrong, refused)

    def written(self) -> str:
        """The text to compile: lines and names of files in errors are those of the source."""
        code, parts, at, numbers = _masked(self.text), [f'#line 1 "{self.path}"\n'], 0, count()
        directives = [m for m in _HIDDEN.finditer(self.text) if m[0].lstrip().startswith("#")]
        templates = {m[1] for each in _items(code) if (m := _TEMPLATE.match(code, *each))}
        for start, end in _items(code) if self.dropped else ():
            is_dropped, whole = (start, end) in self.dropped, code[start:end]
            if not is_dropped and (_OF_DEVICE.search(whole) or not _TEMPLATE.match(whole)):
                continue
            kept = [m for m in directives if start <= m.start() < end and "pragma" not in m[0]]
            blank = _blank(self.text[start:end], start, kept)
            parts += [self.text[at:start], blank if is_dropped else self.text[start:end]]
            for use in _uses(whole, templates):
                number, line = next(numbers), self.text.count("\n", 0, end) + 1
                if f"{_KEPT}{number}" not in self.refused:
                    function = f"inline void traceview_kept_{number}() {use}"
                    parts.append(f'\n#line 1 "{_KEPT}{number}"\n{function}\n')
                    parts.append(f'#line {line} "{self.path}"\n')
            at = end
        return "".join([*parts, self.text[at:]])


def with_one_kernel(path: Path, name: str, folder: Path) -> Path:
    """A copy of a source, with its lines, in which kernels of other names do nothing."""
    text = path.read_text("utf-8", "surrogateescape")
    code, parts, at = _masked(text), [f'#line 1 "{path}"\n'], 0
    directives = [m for m in _HIDDEN.finditer(text) if m[0].lstrip().startswith("#")]
    kernels = [(m, end) for start, end in _items(code) if (m := _KERNEL.search(code, start, end))]
    for found, end in kernels if any(m[1] == name for m, _ in kernels) else ():
        body = code.find("{", found.end(), end) + 1
        if body and found[1] != name:
            kept = [m for m in directives if body <= m.start() < end and "pragma" not in m[0]]
            parts += [text[at:body], _blank(text[body : end - 1], body, kept)]
            at = end - 1
    copy = folder / path.name
    _write(copy, "".join([*parts, text[at:]]))
    return copy


def without_host_code(
    path: Path,
    flags: Sequence[str],
    folder: Path,
    run: Callable[[Sequence[str]], tools.ProcessResult],
) -> tuple[list[str], tools.ProcessResult] | None:
    """Flags of nvcc with which a file compiles without host code, and the result; None without any.

    Missing headers are empty files in `folder`. Headers of the project lose host code as well.
    """
    source = path.absolute()
    roots = [source.parent, *(Path(flag[2:]) for flag in flags if flag.startswith("-I"))]
    codes = {str(source): _read(source)}
    flags = [str(folder / source.name) if each == str(source) else each for each in flags]
    flags[:0] = [f"-I{folder}", folder_of(source)]
    for _ in range(_MOST_ROUNDS):
        for name, code in codes.items():
            root = next(each for each in roots if each in Path(name).parents)
            _write(folder / Path(name).relative_to(root), code.written())
        result = run(flags)
        if result.ok and result.written is not None:
            return flags, result
        missing, places = NO_HEADER.search(result.err), _places(result.err)
        if missing:
            header = folder / missing["header"]
            if ".." in header.parts or header.exists():
                return None
            _write(header, "")
            continue
        files = [Path(file) for file, _ in places if not file.startswith(_KEPT)]
        if not places or any(
            codes.keys().isdisjoint({str(f)}) and not _is_below(f, roots) for f in files
        ):
            return None
        codes = {str(file): _read(file) for file in files} | codes
        changed = {name: code.without(places) for name, code in codes.items()}
        if None in changed.values() or changed == codes:
            return None
        codes = {name: code for name, code in changed.items() if code}
    return None


def folder_of(source: Path) -> str:
    """The flag for headers beside a source that is compiled elsewhere.

    With -I a `time.h` there would take the place of the system's.
    """
    return f"-Xcompiler=-iquote{source.parent}"


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


def _blank(text: str, start: int, kept: Sequence[re.Match[str]]) -> str:
    blank = re.sub(r"[^\n]", " ", text)
    for each in kept:
        first, last = each.start() - start, each.end() - start
        blank = blank[:first] + text[first:last] + blank[last:]
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


def _uses(code: str, templates: Collection[str]) -> Iterator[str]:
    """The bodies of functions that use templates as the code does, which is to be left out."""
    named = {m[1] or m[3]: m for m in reversed(list(_NAMED.finditer(code)))}
    uses = dict[str, None]()
    for found in re.finditer(r"(?<![\w:])(?:\w+::)*(\w+)\s*<(?!<)", code):
        end = _closed(code, found.end())
        if found[1] in templates and end is not None:
            uses[code[found.start() : end + 1]] = None
    return (f"{{ {_meant(use, named)}auto kept = &{use}; (void)kept; }}" for use in uses)


def _meant(use: str, named: dict[str, re.Match[str]]) -> str:
    """The declarations of the constants and types that the arguments of a template name."""
    words, declared = re.findall(r"\w+", use), dict[str, str]()
    for word in words:
        if word in named and word not in declared:
            found = named[word]
            words += re.findall(r"\w+", found[2] or found[4])
            text = (
                f"constexpr auto {word} = {found[2]}; "
                if found[1]
                else f"using {word} = {found[4]}; "
            )
            declared[word] = text
    if _SCALAR in words and _SCALAR not in declared:
        declared[_SCALAR] = f"using {_SCALAR} = float; "
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

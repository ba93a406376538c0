"""The block that a project's source launches a CUDA C++ kernel with: `k<<<grid, block>>>(…)`."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from traceview.base.records import record
from traceview.kernels.ptx.model import SourceLine, ptx_text
from traceview.kernels.toolchain import missing_headers
from traceview.kernels.toolchain.device_code import split

_MOST_FILES, _MOST_FILE_BYTES, _DEEPEST, _MOST_THREADS = 60, 2_000_000, 8, 1024
_SOURCES = (".cu", ".cuh", ".h", ".hpp", ".cpp")
_HIDDEN = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CAST = re.compile(r"\(\s*(?:unsigned|int|size_t|long|const|u?int\d+_t|\s)+\)|static_cast<[\w\s]+>")
_SUFFIX = re.compile(r"(?<=\d)[uUlL]+\b")
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
}


@record
class CudaLaunch:
    """A block's sides, and the line of the launch that names them."""

    block: tuple[int, int, int]
    source: SourceLine


def launch_of(path: Path, kernel: str) -> CudaLaunch | None:
    """The block of the launches of a kernel, in its file or else in the project's nearest.

    None without a launch whose sides are constants of the source, and where launches differ.
    """
    for file in (path, *islice(missing_headers.nearest(path, _SOURCES), _MOST_FILES)):
        found = list(_launches(file, kernel))
        if found:
            alike = {each and each.block for each in found}
            return found[0] if len(alike) == 1 else None
    return None


def _launches(path: Path, kernel: str) -> Iterator[CudaLaunch | None]:
    """Each launch in a file; None for one whose sides are not constants."""
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            return
        text = ptx_text(path.read_bytes())
    except OSError:
        return
    if f"{kernel}<" not in text.replace(" ", ""):
        return
    code = _HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    # Names that only a header of the project gives follow, so that lines keep their numbers.
    names = "\n".join([code, *_included(path, code)])
    for found in re.finditer(rf"\b{re.escape(kernel)}\s*(?:<[^;{{}}()]*?>)?\s*<<<", code):
        end = code.find(">>>", found.end())
        arguments = split(code[found.end() : end].replace("<<", "\0")) if end > 0 else []
        sides = _sides(arguments[1].replace("\0", "<<"), names) if len(arguments) > 1 else None
        line = SourceLine(str(path), code.count("\n", 0, found.start()) + 1)
        yield CudaLaunch(sides, line) if sides else None


def _included(path: Path, code: str) -> Iterator[str]:
    """The texts of the headers beside a source that it includes."""
    for name in re.findall(r'^\s*#\s*include\s+"([^"\n]+)"', code, re.MULTILINE)[:_MOST_FILES]:
        header = path.parent / name
        if header.is_file() and header.stat().st_size <= _MOST_FILE_BYTES:
            yield _HIDDEN.sub(" ", ptx_text(header.read_bytes()))


def _sides(text: str, code: str) -> tuple[int, int, int] | None:
    """The sides that an expression gives a block: `256`, `dim3(16, 16)`, or the name of one."""
    inner = re.fullmatch(r"dim3\s*[({](.*)[)}]", text.strip(), re.DOTALL)
    if inner is None and re.fullmatch(r"\w+", text.strip()):
        given = r"[({]((?:[^;(){}]|\([^()]*\))*)[)}]"
        declared = rf"\bdim3\s+(?:[^;]*?,\s*)?{text.strip()}\s*(?:=\s*dim3\s*)?{given}"
        made = {found[1] for found in re.finditer(declared, code)}
        if len(made) > 1 or re.search(rf"\b{text.strip()}\s*\.\s*[xyz]\s*=[^=]", code):
            return None
        inner = re.search(declared, code)
    sides = [_value(each, code) for each in (split(inner[1]) if inner else [text])]
    if not 1 <= len(sides) <= 3 or any(side is None or side < 1 for side in sides):
        return None
    x, y, z = (*(side or 1 for side in sides), 1, 1)[:3]
    return (x, y, z) if math.prod((x, y, z)) <= _MOST_THREADS else None


def _value(text: str, code: str, depth: int = 0) -> int | None:
    """The value of an expression of constants of the source; None where it has others."""
    plain = _SUFFIX.sub("", _CAST.sub("", text)).strip()
    try:
        return _of_node(ast.parse(plain, mode="eval").body, code, depth)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError):
        return None


def _of_node(node: ast.expr, code: str, depth: int) -> int | None:
    match node:
        case ast.Constant(value=int() as value):
            return int(value)
        case ast.Name(id=name) if depth < _DEEPEST:
            return _constant(name, code, depth)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            sides = [_of_node(each, code, depth) for each in (left, right)]
            if sides[0] is None or sides[1] is None or abs(sides[1]) > _MOST_THREADS:
                return None
            return _OPERATORS[type(op)](sides[0], sides[1])
    return None


def _constant(name: str, code: str, depth: int) -> int | None:
    """What the source gives a name: by #define, or by every declaration and assignment of it."""
    given = re.findall(rf"^[ \t]*#[ \t]*define[ \t]+{name}[ \t]+([^\n\\]+)$", code, re.MULTILINE)
    given += re.findall(rf"\b{name}\s*=(?!=)\s*([^;,{{}}]+)[;,}}]", code)
    integer = r"\b(?:int|size_t|unsigned|uint\w*)"
    given += re.findall(rf"{integer}\s+{name}\s*[({{]([^;(){{}}]+)[)}}]\s*;", code)
    changed = re.search(rf"\b{name}\s*(?:[-+*/%&|^]|<<|>>)=|(?:\+\+|--)\s*{name}\b", code)
    values = {_value(each, code, depth + 1) for each in given}
    return values.pop() if len(values) == 1 and not changed else None

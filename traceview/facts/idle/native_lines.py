"""The function of the user's program in each native stack, and the library function it called."""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.ptx.demangle import plain_name
from traceview.records import record
from traceview.tables import Integers, Mask, Table, Texts
from traceview.trace import Trace, fact

_SYSTEM = (
    r"^\[|^/(usr|lib\w*|opt|nix|snap)/|(site|dist)-packages/"
    r"|(^|/)lib(cu|nv|Tools|nccl|acc|i?omp|pg[a-z]|mpi|open-|uc[mpst]\b|fabric)\w*[-.\w]*\.so|(^|/)mca_\w+\.so"
    r"|/lib(c|m|stdc\+\+|gcc_s|gomp|pthread|dl|rt)\.so|/ld-linux|(^|/)(python|ipython|pypy|julia|java"
    r"|node)[\d.]*$"
)
# Code that compilers, the CUDA runtime and template libraries put into the program's executable.
_RUNTIME = (
    r"_start$|_init$|libcudart_static|cuda[A-Z]|cu[A-Z]\w*$|__cuda|__device_stub|std::|__gnu_cxx::"
    r"|thrust::|cub::|cuda::|nv::|cublas|cudnn|cufft|cusparse|nccl|operator (new|delete)|__sti__"
    r"|__pgi_|__tgt_|__kmpc_|GOACC_|GOMP_|P?MPI_"
)
_OPENING, _CLOSING = "<(", ">)"
_ANONYMOUS = r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::"
_VERSION = r"\.(so|cpython-|abi3\b).*"
_LONGEST_NAME = 20_000


def function_name(symbol: str) -> str:
    """The qualified name of a demangled function: `a::sort` for `void a::sort<int>(int*) [clone]`.

    A mangled symbol gives its unqualified name.
    """
    if symbol.startswith("_Z"):
        return plain_name(symbol)
    text = re.sub(_ANONYMOUS, "", symbol[:_LONGEST_NAME])
    kept, depth = [], 0
    for letter in text.replace("operator()", "operator call").replace("->", "  "):
        depth += letter in _OPENING
        if not depth:
            kept.append(letter)
        elif letter == "(" and depth == 1:
            break
        depth -= letter in _CLOSING
    words = "".join(kept).replace("operator call", "operator()").split(" [clone")[0].split()
    return words[-1] if words else symbol


@record
class NativeLines:
    """One row per native stack.

    `stack` are the numbers of the stacks, ascending. `module` and `function` (demangled) are of the
    innermost frame in the user's program, absent without one. `inner` is the library function
    called by that frame; without a frame of the program, the innermost known function.
    """

    stack: Integers
    module: Texts
    function: Texts
    inner: Texts


@fact
def native_lines(trace: Trace) -> NativeLines:
    return find_functions(trace.recorded("native_frames"))


def find_functions(frames: Table) -> NativeLines:
    """The functions of the distinct stacks, whose frames come in order of stack and depth."""
    module, function = frames.texts("module"), frames.texts("function")
    number, place = np.unique(frames["stack"], return_inverse=True)
    names = [function_name(str(each)) for each in function.values]
    runtime = _matching(function, [bool(re.match(_RUNTIME, name)) for name in names])
    named = function.codes >= 0
    of_system = _matching(module, [bool(re.search(_SYSTEM, str(name))) for name in module.values])

    def innermost(chosen: Mask) -> Integers:
        rows = np.flatnonzero(chosen)
        result = np.full(len(number), -1, np.int64)
        result[place[rows[::-1]]] = rows[::-1]
        return result

    user = innermost(~of_system & named & ~runtime & (module.codes >= 0))
    rows = np.arange(len(place))
    below = rows < np.where(user >= 0, user, -1)[place]
    static = function.isin([str(text) for text in function.values if "cudart_static" in str(text)])
    called = np.full(len(number), -1, np.int64)
    # The outermost frame is assigned last.
    called[place[below & named & ~static]] = rows[below & named & ~static]
    leaf, first = innermost(np.ones(len(place), bool)), innermost(named & ~static)
    without = np.where(first >= 0, first, leaf)
    inner = np.where(
        user >= 0, np.where(user == leaf, -1, np.where(called >= 0, called, leaf)), without
    )
    return NativeLines(
        number,
        _picked(module, user),
        _picked(function, user),
        _inner_names(module, function, inner, user),
    )


def _matching(texts: Texts, hits: list[bool]) -> Mask:
    """True for the rows whose text is a hit."""
    result: Mask = np.append(np.array(hits, bool), False)[texts.codes]
    return result


def _picked(texts: Texts, rows: Integers) -> Texts:
    """The texts of some rows, absent for row −1."""
    return Texts(np.append(texts.codes, np.int32(-1))[rows], texts.values)


def _inner_names(module: Texts, function: Texts, rows: Integers, user: Integers) -> Texts:
    """The function of each row, behind its library if the stack has no frame of the program.

    `libcuda` alone stands for a library without symbols.
    """
    functions, libraries = _picked(function, rows), _picked(module, rows)
    each = groups.group(functions.codes, libraries.codes, user >= 0)
    names = []
    for row in each.first.tolist():
        library = re.sub(_VERSION, "", str(libraries[row] or "").rpartition("/")[2])
        name = None if functions[row] is None else function_name(str(functions[row]))
        parts = (library if user[row] < 0 or name is None else None, name)
        names.append(": ".join(part for part in parts if part) or None)
    texts = Texts.of(names)
    return Texts(texts.codes[each.ids], texts.values)

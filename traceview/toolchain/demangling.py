"""C++ names of mangled symbols: by cu++filt or c++filt, else by the C++ library of this machine.

Symbols come from untrusted files. They are demangled in a separate process, so that a symbol that
crashes the demangler costs only names.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from traceview.toolchain.processes import newest_first, run_process

_MANGLED = re.compile(r"_Z[\w.$]+")
_TOOLS = ("cu++filt", "c++filt", "llvm-cxxfilt")
_TOOLKITS = Path("/usr/local")
_LONGEST = 8192
# An argument of a command may have 128 KiB, all of them together some MiB.
_AT_ONCE = 64
_TIMEOUT_S = 10.0
_BY_LIBRARY = """
import ctypes, sys
library = ctypes.CDLL("libstdc++.so.6")
demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for symbol in sys.argv[1:]:
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    print(ctypes.string_at(text).decode("utf-8", "replace") if text else symbol)
    free(text)
"""
_known: dict[str, str] = {}
_MOST_KNOWN = 1 << 16


def demangled(symbols: Iterable[str]) -> dict[str, str]:
    """Each symbol mapped to its C++ name, or to itself if it is not mangled or not understood."""
    wanted = list(dict.fromkeys(symbols))
    fresh = [s for s in wanted if s not in _known and _MANGLED.fullmatch(s) and len(s) < _LONGEST]
    if len(_known) > _MOST_KNOWN:
        _known.clear()
    for first in range(0, len(fresh), _AT_ONCE):
        some = fresh[first : first + _AT_ONCE]
        _known.update(zip(some, _by_any(some), strict=True))
    return {symbol: _known.get(symbol, symbol) for symbol in wanted}


def _by_any(symbols: Sequence[str]) -> list[str]:
    """The names printed by the first demangler that changes at least one symbol."""
    for command in _commands():
        lines = run_process([*command, *symbols], timeout_s=_TIMEOUT_S).out.splitlines()
        if len(lines) == len(symbols) and lines != list(symbols):
            return lines
    return list(symbols)


def _commands() -> Iterable[list[str | Path]]:
    for tool in _TOOLS:
        on_path = shutil.which(tool)
        toolkits = (path / "bin" / tool for path in newest_first(_TOOLKITS.glob("cuda*")))
        path = on_path or next((path for path in toolkits if path.is_file()), None)
        if path:
            yield [path]
    yield [sys.executable, "-I", "-c", _BY_LIBRARY]

"""PTX and cubin of CUDA C++ that torch compiles at run time (torch.cuda._compile_kernel).

torch requests one of the two from NVRTC and drops the program. It gets a wrapped library that
always fetches the PTX too, and compiles with line info, which does not change the code. If torch
loads PTX, the driver makes the cubin, which is not accessible. Works with torch 2.8 to 2.13.
"""

from __future__ import annotations

import ctypes
from _thread import _local
from contextlib import suppress
from functools import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Guard = Callable[[Callable[..., None]], Callable[..., None]]

_LINES = b"--generate-line-info"
# With these options there is line info already, or no GPU code yet.
_INSTEAD = (
    *("-lineinfo", "--generate-line-info", "-G", "--device-debug"),
    *("-dlto", "--dlink-time-opt"),
)
_ARCH = "--gpu-architecture="
_MOST_TEXT = 1_000_000
_LIBRARIES = ("_get_gpu_rtc_library", "_get_nvrtc_library")


def hook(module: ModuleType, add: Callable[[dict[str, Any]], None], guarded: Guard) -> None:
    """Pass a description of each NVRTC kernel of torch to `add`; `guarded` notes failures."""
    seen = _Seen()
    gather = guarded(lambda source, result: add(seen.described(source, result)))
    for name in _LIBRARIES:
        if hasattr(module, name):
            setattr(module, name, _watched(getattr(module, name), seen))
    compile_ = module._nvrtc_compile

    @wraps(compile_)
    def compiled(source: Any, *arguments: Any, **named: Any) -> Any:
        seen.begin()
        result = compile_(source, *arguments, **named)
        gather(source, result)
        return result

    module._nvrtc_compile = compiled  # type: ignore[attr-defined]


def _watched(get: Callable[[], Any], seen: _Seen) -> Callable[[], Any]:
    @wraps(get)
    def library() -> Any:
        real = get()
        return real if isinstance(real, _Library) else _Library(real, seen)

    return library


class _Seen(_local):
    """NVRTC inputs and outputs of the kernel being compiled, per thread."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.ptx: bytes | None = None
        self.options: list[str] = []
        self.file = ""

    def described(self, source: Any, result: Any) -> dict[str, Any]:
        """Describe the kernel for the gathered folder."""
        from binascii import b2a_base64
        from hashlib import sha256

        code, name = result
        binary = bytes(code) if isinstance(code, (bytes, bytearray)) else str(code).encode()
        cubin = binary if binary.startswith(b"\x7fELF") else None
        ptx = self.ptx or (None if cubin else binary)
        text = ptx.rstrip(b"\0").decode("utf-8", "replace") if ptx else None
        identity = (name, binary, *self.options)
        arch = next((o for o in self.options if o.startswith(_ARCH)), "").rpartition("_")[2]
        return {
            "name": str(name),
            "arch": int(arch.rstrip("af")) if arch.rstrip("af").isdigit() else None,
            "hash": "nvrtc-" + sha256(repr(identity).encode()).hexdigest(),
            "ptx": text,
            "cubin": b2a_base64(cubin, newline=False).decode("ascii") if cubin else None,
            "arguments": [],
            "options": {"nvrtc": [o for o in self.options if not o.startswith("-I")]},
            "source_file": _as_compiled(self.file, text or "") or None,
            "source_line": 1,
            "source_text": str(source)[:_MOST_TEXT],
        }


def _as_compiled(file: str, ptx: str) -> str:
    """The source file name in the PTX, to which NVRTC prepends the current folder."""
    for line in ptx.splitlines():
        words = line.split('"')
        if len(words) > 2 and words[0].split()[:1] == [".file"] and words[1].endswith("/" + file):
            return words[1]
    return file


class _Library:
    """NVRTC with three functions that observe their arguments."""

    def __init__(self, real: Any, seen: _Seen) -> None:
        self._real, self._seen = real, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def nvrtcCreateProgram(self, program: Any, source: Any, name: Any, *rest: Any) -> Any:  # noqa: N802
        self._seen.file = name.decode("utf-8", "replace") if isinstance(name, bytes) else ""
        return self._real.nvrtcCreateProgram(program, source, name, *rest)

    def nvrtcCompileProgram(self, program: Any, count: Any, options: Any) -> Any:  # noqa: N802
        # If this fails, compile with torch's own options.
        with suppress(Exception):
            count, options = self._with_lines(count, options)
        return self._real.nvrtcCompileProgram(program, count, options)

    def nvrtcDestroyProgram(self, program: Any) -> Any:  # noqa: N802
        with suppress(Exception):
            self._seen.ptx = self._ptx(getattr(program, "_obj", program))
        return self._real.nvrtcDestroyProgram(program)

    def _with_lines(self, count: Any, options: Any) -> tuple[Any, Any]:
        listed = [options[at] for at in range(count)]
        words = [word.decode("utf-8", "replace") for word in listed]
        self._seen.options = words
        if any(word.partition("=")[0] in _INSTEAD for word in words):
            return count, options
        more = [*listed, _LINES]
        return len(more), (ctypes.c_char_p * len(more))(*more)

    def _ptx(self, program: Any) -> bytes | None:
        """The PTX of a program; None if NVRTC made none."""
        size = ctypes.c_size_t()
        if self._real.nvrtcGetPTXSize(program, ctypes.byref(size)) or not size.value:
            return None
        buffer = ctypes.create_string_buffer(size.value)
        return None if self._real.nvrtcGetPTX(program, buffer) else buffer.raw

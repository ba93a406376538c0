"""Code and metadata of a compiled Triton kernel as a JSON-compatible dict.

Works with Triton 3.3 to 3.9. All fields but the code are optional; a kernel for a non-NVIDIA GPU is
None.
"""

from __future__ import annotations

import os
import sys
from binascii import b2a_base64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    Known = dict[str, Any]

_MOST_TEXT = 1_000_000


def compiled(kernel: Any) -> Known | None:
    """Describe a CompiledKernel of Triton."""
    metadata = _as_dict(kernel.metadata)
    code = kernel.asm
    if "cubin" not in code and "ptx" not in code:
        return None
    source = kernel.src
    parameters = (getattr(source, name, None) for name in ("signature", "constants", "attrs"))
    return {
        **_metadata_fields(metadata),
        "hash": str(kernel.hash),
        "ptx": code.get("ptx"),
        "cubin": _encoded(code.get("cubin")),
        "arguments": list(_arguments(*parameters)),
        **_source(getattr(source, "fn", None), None),
    }


def loaded(kernel: Any, result: Any, tuner: Any) -> Known | None:
    """Describe a kernel of Inductor's static launcher, from its cubin and the files next to it.

    `result` and `tuner` are Inductor's CompileResult and CachingAutotuner, or None.
    """
    from json import loads

    path = str(kernel.cubin_path)
    stem, suffix = os.path.splitext(path)
    if suffix != ".cubin":
        return None
    meta = getattr(result, "compile_meta", None) or {}
    document = _read(stem + ".json")
    metadata = loads(document) if document else {}
    if not isinstance(metadata, dict) or not metadata:
        metadata = {
            "name": kernel.name,
            "num_warps": getattr(kernel, "num_warps", None),
            "shared": getattr(kernel, "shared", None),
            "target": {"arch": meta.get("cc")},
        }
    ptx = _read(stem + ".ptx")
    attributes = (meta.get("configs") or [None])[0]
    return {
        **_metadata_fields(metadata),
        "hash": str(kernel.hash),
        "ptx": None if ptx is None else ptx.decode("utf-8", "replace"),
        "cubin": _encoded(_read(path)),
        "arguments": list(_arguments(meta.get("signature"), meta.get("constants"), attributes)),
        **_source(getattr(tuner, "fn", None), getattr(tuner, "filename", None)),
    }


def _metadata_fields(metadata: Mapping[str, Any]) -> Known:
    """The fields stored by name, and the rest of the metadata as options."""
    target = _as_dict(metadata.get("target") or {})
    return {
        "name": str(metadata["name"]),
        "arch": target.get("arch"),
        "num_warps": metadata.get("num_warps"),
        "num_stages": metadata.get("num_stages"),
        "shared_bytes": metadata.get("shared"),
        "options": {name: value for name, value in metadata.items() if name not in _NAMED_FIELDS},
    }


_NAMED_FIELDS = ("name", "hash", "target", "num_warps", "num_stages", "shared")


def _as_dict(value: Any) -> dict[str, Any]:
    """A named tuple, a dataclass or a mapping as a dict."""
    if isinstance(value, dict):
        return value
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    return dict(vars(value))


def _arguments(signature: Any, constants: Any, attributes: Any) -> Iterator[Known]:
    """Parameters in order, tuples flattened, with types and the values of constexprs."""
    if not isinstance(signature, dict):
        return
    constants = constants if isinstance(constants, dict) else {}
    attributes = attributes if isinstance(attributes, dict) else {}
    for at, (parameter, parameter_type) in enumerate(signature.items()):
        for place, name, type_ in _leaves((at,), str(parameter), parameter_type):
            argument = {
                "name": name,
                "type": str(type_),
                "divisible_by_16": any(
                    attribute == "tt.divisibility" and number % 16 == 0
                    for attribute, number in attributes.get(place) or ()
                ),
            }
            for key in (place, name, at):
                if key in constants:
                    argument["value"] = _plain(constants[key])
                    break
            yield argument


def _leaves(place: tuple[int, ...], name: str, type_: Any) -> Iterator[tuple[Any, str, Any]]:
    """Flatten a tuple into `pair[0]`, `pair[1]`, or `pair.key` for a named tuple."""
    if not isinstance(type_, (tuple, list)):
        yield place, name, type_
        return
    fields = getattr(type_, "_fields", None)
    for at, inner in enumerate(type_):
        called = f"{name}.{fields[at]}" if fields else f"{name}[{at}]"
        yield from _leaves((*place, at), called, inner)


def _plain(value: Any) -> Any:
    """A constexpr as a JSON value: types as tl.float16, functions by name."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if type(value).__name__ == "dtype":
        language = sys.modules.get("triton.language")
        for name in dir(language) if language else ():
            if getattr(language, name, None) == value and not name.startswith("_"):
                return "tl." + name
        return str(value)
    return str(getattr(value, "__name__", None) or repr(value)[:80])


def _source(function: Any, file: Any) -> Known:
    """File and line of the kernel's `def`, and the source from there on."""
    lines = getattr(function, "raw_src", None)
    first = getattr(function, "starting_line_number", None)
    if not isinstance(lines, (list, tuple)) or not isinstance(first, int):
        return {"source_file": str(file) if file else None}
    code = getattr(getattr(function, "fn", None), "__code__", None)
    is_def = (str(line).lstrip().startswith("def ") for line in lines)
    before = next((number for number, found in enumerate(is_def) if found), 0)
    place = getattr(code, "co_filename", None) or file
    return {
        "source_file": str(place) if place else None,
        "source_line": first + before,
        "source_text": "".join(map(str, lines[before:]))[:_MOST_TEXT],
    }


def _encoded(code: Any) -> str | None:
    if not isinstance(code, (bytes, bytearray)):
        return None
    return b2a_base64(code, newline=False).decode("ascii")


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None

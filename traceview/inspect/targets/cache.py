"""Kernels in a cache folder of Triton's or of Inductor's: what a real run has compiled.

Each kernel has a folder with NAME.json beside NAME.ptx, NAME.cubin and NAME.ttir. The JSON knows
the options and the dynamic shared memory; the types and alignment of the arguments are in the
Triton IR, which drops constexprs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from traceview.errors import InputError
from traceview.headless.inductor_sources import Generated
from traceview.inspect.targets.refusals import refuse_amd_cache, refuse_debug_folder
from traceview.ptx.model import Argument, Compiled, source_path

_FUNCTION = re.compile(r"tt\.func public @\S+?\((?P<parameters>.*)\)\s*(?:attributes|\{|->)")
_PARAMETER = re.compile(
    r"%\w+: (?P<type>.+?)(?: \{(?P<attributes>[^}]*)\})?"
    r' loc\("(?P<name>[^"]*)"\((?P<place>#loc\d*)\)\)'
)
_DIVISIBLE = re.compile(r"tt\.divisibility = (\d+)")
_POINTER = re.compile(r"!tt\.ptr<(.+?)(?:, \d+)?>")
_TYPES = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "f8E4M3FN": "fp8e4nv", "f8E5M2": "fp8e5"}


_STAGES = ("ttir", "ttgir", "llir")


def read_cache(folder: Path, *, note: Callable[[str], None] = lambda _: None) -> list[Compiled]:
    """The kernels in a folder and below it, by name and path.

    A damaged kernel is left out, and `note` gets a message. Raises InputError if there is no
    kernel.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", "pass the folder of a cache")
    generated, kernels = Generated.in_folder(folder), []
    for path in sorted(folder.rglob("*.json")):
        # Each kernel has compiled code beside the JSON file that describes it.
        code = (path.with_suffix(suffix) for suffix in (".ptx", ".cubin"))
        if path.name.startswith("__grp__") or not any(file.is_file() for file in code):
            continue
        try:
            described = json.loads(path.read_text("utf-8"))
            if described["target"]["backend"] == "cuda":
                kernels.append(generated.described(_compiled(path, described)))
        except (OSError, ValueError, LookupError, TypeError) as error:
            note(f"{path} is left out: it is damaged ({type(error).__name__}: {error})")
    if not kernels:
        refuse_amd_cache(folder)
        refuse_debug_folder(folder)
        remedy = "give TRITON_CACHE_DIR, ~/.triton/cache, TORCHINDUCTOR_CACHE_DIR or one below it"
        raise InputError(f"{folder} holds no CUDA kernel compiled by Triton", remedy)
    return sorted(kernels, key=lambda compiled: compiled.name)


def _compiled(path: Path, described: Mapping[str, Any]) -> Compiled:
    cubin = path.with_suffix(".cubin")
    arguments, source = _from_ir(_read_if_there(path, ".ttir", ".source") or "")
    return Compiled(
        name=str(described["name"]),
        arch=f"sm_{int(described['target']['arch'])}",
        how="given",
        ptx=_read_if_there(path, ".ptx"),
        cubin=cubin.read_bytes() if cubin.is_file() else None,
        arguments=arguments,
        num_warps=int(described["num_warps"]),
        num_stages=described.get("num_stages"),
        dynamic_shared_bytes=described.get("shared"),
        source_file=source[0] if source else None,
        source_line=source[1] if source else None,
        stages={
            name: text for name in _STAGES if (text := _read_if_there(path, f".{name}")) is not None
        },
    )


def _read_if_there(path: Path, *suffixes: str) -> str | None:
    files = (path.with_suffix(suffix) for suffix in suffixes)
    return next((file.read_text("utf-8") for file in files if file.is_file()), None)


def _from_ir(text: str) -> tuple[tuple[Argument, ...], tuple[str, int] | None]:
    """Arguments, and the file and line of the kernel's `def`, from Triton IR."""
    function = _FUNCTION.search(text)
    parameters = list(_PARAMETER.finditer(function["parameters"])) if function else []
    place = parameters[0]["place"] if parameters else "#loc"
    line = re.search(rf'^{place} = loc\("(.*)":(\d+):\d+\)', text, re.MULTILINE)
    arguments = []
    for match in parameters:
        divisible = _DIVISIBLE.search(match["attributes"] or "")
        by_16 = bool(divisible and int(divisible[1]) % 16 == 0)
        arguments.append(Argument(match["name"], _type(match["type"]), by_16))
    return tuple(arguments), (source_path(line[1]), int(line[2])) if line else None


def _type(written: str) -> str:
    """Triton's name of a type of its IR: *fp32 for !tt.ptr<f32>."""
    pointer = _POINTER.fullmatch(written)
    return f"*{_type(pointer[1])}" if pointer else _TYPES.get(written, written)

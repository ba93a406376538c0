"""What is left of each text of a trace, by the kind of its column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any

from traceview.traces.trace.nsys import ranges
from traceview.traces.trace.nsys.added_tables import MOST_FRAMES
from traceview.traces.trace.nsys.nccl_calls import FIELDS
from traceview.traces.trace.nsys.ranges import RANGE_PREFIX as ADDED
from traceview.traces.trace.scrub.kept import TextKind, is_public
from traceview.traces.trace.scrub.secrets import ELIDED, PrivateTexts, SourcePaths, short_module
from traceview.traces.trace.scrub.secrets import REMOVED as REMOVED_BYTES

# Pseudonyms for the names of a trace, for `scrub --names`.
#
# A pseudonym is a hash of the name alone: the same name has the same one in every trace, so
# traces can be compared. Whoever guesses a name can therefore check the guess.

_NUMBER = re.compile(r"(.*?[^\d.])?(\d{1,6})", re.DOTALL)
_PSEUDONYM = re.compile(r"(?:kernel|range|function|file)_[0-9a-f]{10}(?:_\d{1,6}|\.\w{1,4})?")
# Namespaces of the libraries whose kernels and functions are known by name.
_NAMESPACES_LISTED = """
at c10 caffe2 cask_plugin cask_plugin__5x_cudnn cooperative_groups cub cuda cudnn cute cutlass
cutlass__5x_cudnn cublas cublasLt flash fmha internal native nv nvinfer1 nvfuser std thrust torch
"""
_NAMESPACES = frozenset(_NAMESPACES_LISTED.split())
_WORDS_LISTED = """
anonymous bool bfloat16 char class const constexpr double enum false float half int int2 int4
lambda long namespace operator short signed size_t static struct true uint2 uint4 unnamed type
unsigned void volatile int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t __half
__half2 __nv_bfloat16 __nv_bfloat162 float2 float4 float8 instance auto decltype nullptr_t T T0 T1
T2 T3 with
"""
_WORDS = frozenset(_WORDS_LISTED.split())
_QUALIFIED = re.compile(r"~?[A-Za-z_]\w*(?:::~?[A-Za-z_]\w*)*")


def pseudonym(kind: str, name: str) -> str:
    """`kind` and the first 40 bits of a hash of the name."""
    from hashlib import sha256

    return f"{kind}_{sha256(f'traceview {kind} {name}'.encode()).hexdigest()[:10]}"


def is_pseudonym(name: str) -> bool:
    """Whether a name is one that this module made."""
    return _PSEUDONYM.fullmatch(name) is not None


def numbered_pseudonym(kind: str, name: str) -> str:
    """A pseudonym that keeps the number at the end of a name, which counts steps and layers."""
    match = _NUMBER.fullmatch(name)
    if match and match[1]:
        return f"{pseudonym(kind, match[1])}_{match[2]}"
    return pseudonym(kind, name)


def of_library(name: str, is_known: Callable[[str], object]) -> bool:
    """Whether a library's kernel has this name, and nothing in it comes from the user's code.

    `is_known` recognizes the kernels of libraries. A type or function of a template argument
    outside the libraries' namespaces makes the name private.
    """
    if not is_known(name):
        return False
    found = _QUALIFIED.findall(name)
    first = next((word for word in found if word not in _WORDS), "")
    return all(
        word in _WORDS or word.partition("::")[0] in _NAMESPACES or (word == first)
        for word in found
        if not word.startswith("::")
    )


REMOVED = REMOVED_BYTES.decode()
_API = re.compile(r"_*(?:cu|cuda|nv|nvtx|nccl|hip|hsa|roctx)[A-Z][A-Za-z0-9]{2,60}(?:_[a-z0-9]+)*")
_HINT = re.compile(r"(?:Tensor|torch|cupy|cuda|cudf|jax|numba|Array)(?:\.\w{1,40}){1,4}")
_DRIVER_THREAD = re.compile(r"cuda[0-9a-f]{11}")
_LOADED = re.compile(r"dlopen\((.+)\)")
_FUNCTION = re.compile(r"[A-Za-z_<][\w.<>]*")
_SYMBOL = re.compile(r"[\w:<>,()&*~\[\]{}.$+\-=|!^%#' @]+", re.ASCII)
_NO_SYMBOL = re.compile(r"(?!0x)[\d.@]|(?:[0-9a-f]{2}:){5}|\w+@", re.IGNORECASE)
_PUNCTUATED = re.compile(r"^\S+$|[(<:{]|^operator ")
_OPERATOR = re.compile(
    r"(?:ProfilerStep#\d{1,7}|(?:aten|prim|autograd|c10d|nccl)::[\w:]+(?: ?, ?\w+ = [\d\[\], ]+)*)"
)
_TOKEN = re.compile(r"(\s+)")
_EDGES = "'\"()[],.;:!?"
_COUNTED = ("produced:", "collected:")
_HASH = re.compile(r"(?:nvrtc-)?[0-9a-f]{32,128}|[A-Z2-7]{52}")
_ARCH = re.compile(r"sm_\d{2,3}[af]?|gfx\d{3,4}[a-z]?")
_TYPE = re.compile(r"\*?(?:[iuf]\d{1,3}|fp\d{1,2}\w{0,8}|bf16|constexpr|tensordesc<[\w, \[\]]*>)")
_COUNT = re.compile(r"[0-9]{1,20}")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,60}")


# Of the user's own trace these only lose home folders and values of the environment.
_OWN = (
    *(TextKind.FUNCTION, TextKind.SYMBOL, TextKind.CALL, TextKind.FILE, TextKind.MODULE),
    *(TextKind.SOURCE, TextKind.MESSAGE, TextKind.CODE_FACT),
)


class TextRules:
    """What is left of texts, and the numbers of the names that the JSON of stacks refers to.

    `own` texts stay with their user, who needs the paths of the program and its lines: they only
    lose home folders and the values of the environment. With `is_known`, which recognizes the
    kernels of libraries, all other names become pseudonyms.
    """

    def __init__(
        self,
        private: PrivateTexts,
        *,
        own: bool = False,
        is_known: Callable[[str], object] | None = None,
    ) -> None:
        self.numbered: dict[TextKind, set[int]] = {TextKind.FUNCTION: set(), TextKind.FILE: set()}
        self._private, self._own, self._is_known = private, own, is_known
        self._paths = SourcePaths()
        self._known: dict[tuple[TextKind, str], str | None] = {}
        self._of: dict[TextKind, Callable[[str], str | None]] = {
            TextKind.KERNEL: self._kernel,
            TextKind.RANGE: self._range,
            TextKind.FUNCTION: self._function,
            TextKind.SYMBOL: self._symbol,
            TextKind.CALL: self._call,
            TextKind.FILE: self._file,
            TextKind.MODULE: self._module,
            TextKind.SOURCE: lambda _: None,
            TextKind.WORDS: lambda text: text if is_public(text) else None,
            TextKind.MESSAGE: message,
            TextKind.STACK: self._stack,
            TextKind.FIELD: lambda text: text if text in FIELDS else None,
            TextKind.CODE_FACT: self._code_fact,
        }

    @property
    def own(self) -> bool:
        """Whether the texts stay with their user."""
        return self._own

    @property
    def renames(self) -> bool:
        """Whether names become pseudonyms."""
        return self._is_known is not None

    def of(self, kind: TextKind, text: str) -> str | None:
        """What is left of a text; None if nothing is."""
        if text == REMOVED:
            return text
        key = (kind, text)
        if key not in self._known:
            own = self._own and kind in _OWN
            self._known[key] = self._cleaned(text) if own else self._of[kind](text)
        return self._known[key]

    def command(self, text: str) -> str:
        """A command line: as it is if it is the user's own, else the name of its script."""
        if self._own:
            return self._cleaned(text)
        words = text.split()
        named = (self._file(word) for word in words if word.endswith(".py"))
        script = next(filter(None, named), None)
        return " ".join(filter(None, (script, ELIDED if words[1:] or not script else "")))

    def _cleaned(self, text: str) -> str:
        return self._private.cleaned(text.encode(errors="replace")).decode(errors="replace")

    def _shortened(self, text: str) -> str:
        return self._private.shortened(text.encode(errors="replace")).decode(errors="replace")

    def _kernel(self, text: str) -> str:
        if self._is_known is None:
            return self._shortened(text)
        if is_pseudonym(text) or of_library(text, self._is_known):
            return text
        return pseudonym("kernel", text)

    def _range(self, text: str) -> str | None:
        for prefix in (ranges.PREFIX, ADDED):
            if text.startswith(prefix):
                rest = text.removeprefix(prefix)
                return prefix + (self._mark(rest) if prefix != ADDED else self._range(rest) or "")
        if text.startswith(ranges.CLOCK):
            return text if text.removeprefix(ranges.CLOCK).isdecimal() else None
        if not self.renames:
            return self._shortened(text)
        known = is_pseudonym(text) or is_public(text) or _API.fullmatch(text)
        if known or _OPERATOR.fullmatch(text):
            return text
        return numbered_pseudonym("range", text)

    def _mark(self, text: str) -> str:
        """A mark of `traceview record`: without its source text, unless it is the user's own."""
        if self._own:
            return self._shortened(text)
        mark = ranges.parsed(text)
        file = self._file(mark.file or "") or REMOVED
        function = self._function(mark.function or "") or REMOVED
        hint = (self._call(mark.hint) if mark.hint else None) or ""
        return f"{file}:{mark.line or 0} in {function}: [{hint}]"

    def _function(self, text: str) -> str | None:
        text = unescape(text)
        if not _FUNCTION.fullmatch(text):
            return None
        keep = not self.renames or is_pseudonym(text) or not text[:1].isalpha()
        return text if keep else pseudonym("function", text)

    def _symbol(self, text: str) -> str | None:
        formed = _SYMBOL.fullmatch(text) and _PUNCTUATED.search(text)
        if not formed or _NO_SYMBOL.match(text):
            return text if is_public(text) else None
        if self._is_known is None or is_pseudonym(text) or _API.fullmatch(text):
            return text
        public = of_library(text, lambda name: "::" in name)
        return text if public else pseudonym("function", text)

    def _call(self, text: str) -> str | None:
        loaded = _LOADED.fullmatch(text)
        if loaded:
            return f"dlopen({self._module(loaded[1]) or ELIDED})"
        forms = (_API, _HINT, _DRIVER_THREAD)
        return text if any(f.fullmatch(text) for f in forms) or is_public(text) else None

    def _file(self, text: str) -> str | None:
        # nsys escapes the names of Python for HTML, as in `&lt;string&gt;`.
        text = unescape(text)
        short = self._paths.short(text)
        if not self.renames or short is None or short.count("/") > 2 or short[:1] in "([<":
            return short
        name = short.rpartition("/")[2]
        if is_pseudonym(name):
            return short
        return pseudonym("file", text) + name[name.rfind(".") :]

    def _module(self, text: str) -> str | None:
        words = is_public(text.rpartition("/")[2])
        short = short_module(text, words)
        return short if words or not self.renames or (short or "").startswith("/") else None

    def _stack(self, text: str) -> str | None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        levels = [value, *(value.values() if isinstance(value, dict) else ())]
        for level in levels:
            if isinstance(level, dict) and isinstance(level.get("Frames"), list):
                return self._python(level)
        fields: dict[str, Any] = {}
        for level in levels:
            if isinstance(level, dict):
                # An integer, which JSON may hold as text.
                fields |= {
                    name: value
                    for name in FIELDS
                    if isinstance(value := level.get(name), int)
                    or (isinstance(value, str) and _COUNT.fullmatch(value))
                }
        return json.dumps(fields) if fields else None

    def _python(self, sample: dict[str, Any]) -> str:
        state = str(sample.get("Thread state", ""))
        frames: list[dict[str, object]] = []
        for frame in sample["Frames"][:MOST_FRAMES]:
            parts = frame if isinstance(frame, dict) else {}
            line = parts.get("Line")
            function = self._named(parts.get("Function"), TextKind.FUNCTION)
            file = self._named(parts.get("File"), TextKind.FILE)
            place = line if isinstance(line, int) else 0
            frames.append({"Function": function, "File": file, "Line": place})
        whole = {
            "Thread state ID": 0,
            "Thread state": state if is_public(state) else "",
            "Frames count": len(frames),
            "Frames": frames,
        }
        return json.dumps({"Python Periodic Sampling": whole}, separators=(",", ":"))

    def _named(self, name: object, kind: TextKind) -> object:
        if isinstance(name, str):
            return self.of(kind, name) or REMOVED
        number = name if isinstance(name, int) else 0
        self.numbered[kind].add(number)
        return number

    def _code_fact(self, text: str) -> str | None:
        if _HASH.fullmatch(text) or _ARCH.fullmatch(text):
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return json.dumps(_plain(value)) if isinstance(value, (dict, list)) else None


def _plain(value: object) -> object:
    """Names, numbers and types of JSON; any other text is removed."""
    if isinstance(value, dict):
        named = {k: v for k, v in value.items() if _IDENTIFIER.fullmatch(k)}
        # The name of a parameter stays.
        name = named.get("name")
        parameter = isinstance(name, str) and _IDENTIFIER.fullmatch(name)
        plain = {key: _plain(v) for key, v in named.items()}
        return {**plain, "name": name} if parameter else plain
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        is_word = _TYPE.fullmatch(value) or _ARCH.fullmatch(value) or is_public(value)
        return value if is_word else REMOVED
    return value


def message(text: str) -> str:
    """A sentence of the recorder; `…` stands for what is not a public word or a small number."""
    result, last = [], ""
    for token in _TOKEN.split(text):
        core = token.strip(_EDGES)
        counted = last.endswith(_COUNTED) and core.isdecimal()
        kept = token.isspace() or counted or is_public(token)
        # Of a path, the name of a public file remains.
        folder, _, name = core.rpartition("/")
        elided = f"{ELIDED}/{name}" if folder and is_public(name) else ELIDED
        result.append(token if kept else token.replace(core, elided) if core else ELIDED)
        last = token if token.strip() else last
    return "".join(result)

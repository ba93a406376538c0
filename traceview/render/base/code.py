"""The colours of a page, one per meaning, and code on pages: lines and blocks, coloured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from markupsafe import Markup, escape

from traceview.base.records import record
from traceview.base.vocabulary.activities import ACTIVITIES
from traceview.base.vocabulary.causes import CAUSES


@record
class CodeLink:
    """A link to the page element with the id `target`; plain text if that is empty."""

    text: str
    target: str


@record
class CodeLine:
    """A line of code. `mark` is a CSS class shared by all code from one source line."""

    text: str
    margin: str
    narrow: bool
    id: str | None = None
    mark: str | None = None
    links: tuple[CodeLink, ...] = ()
    number: int | None = None
    after_gap: bool = False


@record
class CodeBlock:
    """A source file or listing, its lines called `unit`; `missing` is the reason if it is empty."""

    title: str
    lines: tuple[CodeLine, ...] = ()
    missing: str = ""
    left_out: int = 0
    unit: str = "instructions"


_PYTHON = (
    "and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global"
    "|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False"
)
_CUDA = (
    "auto|bool|char|const|constexpr|do|double|extern|float|inline|int|long|namespace|new|restrict"
    "|short|signed|sizeof|static|struct|switch|template|typename|union|unsigned|using|void|volatile"
    "|__device__|__global__|__shared__|__restrict__|__launch_bounds__"
)
_SOURCE = re.compile(
    r"(?P<comment>\#(?!include|define|pragma|if|else|endif).*|//.*|/\*.*?\*/)"
    r"|(?P<string>\"[^\"]*\"|'[^']*')"
    rf"|(?P<keyword>\b(?:{_PYTHON}|{_CUDA})\b|@[\w.]+|#\w+)"
    r"|(?P<number>\b\d[\w.]*\b)"
)
_LISTING = re.compile(r"^(?P<space>\s*)(?P<guard>@\S+ )?(?P<opcode>[A-Za-z][\w.:]*)")


def colored(text: str, is_listing: bool) -> Markup:
    """A line of a file or listing, escaped, with its tokens in `<b>` elements with classes.

    Each line is coloured on its own, even within a docstring of several lines.
    """
    if is_listing:
        match = _LISTING.match(text)
        if not match:
            return escape(text)
        guard = Markup('<b class="string">{}</b>').format(match["guard"]) if match["guard"] else ""
        opcode = Markup('<b class="keyword">{}</b>').format(match["opcode"])
        return escape(match["space"]) + guard + opcode + escape(text[match.end() :])
    return Markup("").join(_tokens(text))


def _tokens(text: str) -> Iterator[Markup]:
    end = 0
    for token in _SOURCE.finditer(text):
        yield escape(text[end : token.start()])
        yield Markup('<b class="{}">{}</b>').format(token.lastgroup, token[0])
        end = token.end()
    yield escape(text[end:])


_COMMAND = (
    r"\b(?:traceview|nsys) (?:record|report|compare|ptx|bench|doctor|export|profile|launch)\b"
    r"(?: (?:--[\w-]+(?:=[\w.,:/*-]*\w)?(?: (?!or\b|and\b|to\b|for\b|on\b|with\b)[a-z]\w*)?"
    r"|[A-Z]{3,}\b(?:\.[a-z]+\b)?|\.\.\.))*"
)
_FILE = r"(?:py|pyx|cu|cuh|c|cc|cpp|h|hpp)"
_CODE = (
    rf"(?<![\w./~-])(?:~?/)?(?:[\w.+-]+/)*[\w.+-]*\w\.{_FILE}(?::\d+)?(?![\w/])",  # a file, a line
    r"--[a-z][\w-]+(?:[ =]'[^']*'|=[\w.,:/*-]*\w)?",  # an option
    r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]*(?:=\w+)?",  # an environment variable
    r"(?:\b[A-Za-z_]\w*|(?<!\w)(?=\.))(?:\.[A-Za-z_]\w*)*\((?:[^()\s]*)\)",  # a call
    r"\b[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+",  # a dotted name
    r"\b[A-Za-z](?=[\w#/]*_)[\w#/]*(?:::[\w:]*\w)?(?:=[\w#]+)?",  # a name, a path, an argument
    r"\bcu(?:da)?[A-Z][a-z]\w+",  # a call of CUDA
)
_SPAN = re.compile(f"`(?P<quoted>[^`]+)`|(?P<command>{_COMMAND})|(?P<code>{'|'.join(_CODE)})")
_LONGEST = 2_000
_COMPLETE = ("traceview doctor",)
"""Commands worth copying without arguments; other verbs need some."""


class Span(NamedTuple):
    """A part of a sentence; quoted code comes without its backticks."""

    text: str
    kind: Literal["prose", "code", "command"]


def code_spans(text: str) -> Iterator[Span]:
    """Split a sentence into prose, code and commands; a very long text is prose as a whole."""
    end = 0
    for match in _SPAN.finditer(text) if len(text) <= _LONGEST else ():
        yield Span(text[end : match.start()], "prose")
        whole = match["quoted"] or match[0]
        is_command = match["command"] and (" " in whole.partition(" ")[2] or whole in _COMPLETE)
        yield Span(whole, "command" if is_command else "code")
        end = match.end()
    yield Span(text[end:], "prose")


def coded(text: str) -> Markup:
    """The text, escaped, with code in `<code>` elements; commands to copy have `data-copy`."""
    return Markup("").join(_marked(span) for span in code_spans(text))


def _marked(span: Span) -> Markup:
    if span.kind == "prose":
        return escape(span.text)
    if span.kind == "command":
        return Markup("<code data-copy>{}</code>").format(span.text)
    return Markup("<code>{}</code>").format(span.text)


# The colours of a page: one per meaning, the same in all figures and in the timeline.
#
# GPU work has full colours by class of kernel. Idle time has reds and pale tints by cause, and
# figures hatch it, so that busy and idle differ without colour as well.

_Shades = tuple[str, str]

CLASSES: Mapping[str, _Shades] = {
    "gemm": ("#2f6db3", "#5b9be0"),
    "attention": ("#4a4fb5", "#8b8ff0"),
    "convolution": ("#1c8299", "#45b5cc"),
    "normalization": ("#3d8f57", "#66b87f"),
    "elementwise": ("#86a135", "#aac65a"),
    "cast-copy": ("#7b9a8b", "#9dbcae"),
    "reduction": ("#22958a", "#4cc2b4"),
    "softmax": ("#7a58c2", "#a68be8"),
    "gather-scatter": ("#a8517f", "#cf7aa8"),
    "sort-scan": ("#8c6a49", "#b8977a"),
    "optimizer": ("#9748ab", "#c57fd8"),
    "random": ("#b084c6", "#d0aee0"),
    "communication": ("#d97d22", "#f0a04f"),
    "autotuner": ("#5f6875", "#a0a9b4"),
    "other": ("#8b929b", "#858d97"),
}
"""Classes of kernels, as `facts/kernel_classes.py` labels them; light and dark."""

OPERATIONS: Mapping[str, _Shades] = {
    "copy": ("#c39a1c", "#e0bf4a"),
    "memset": ("#a59c74", "#b9b08a"),
    "graph": ("#4f6a8a", "#7f9cc0"),
}

PHASES: Mapping[str, _Shades] = {
    "start-up": ("#b9bfc7", "#545c66"),
    "compilation": ("#9c6f66", "#c0948b"),
    "warm-up": ("#d3c9a8", "#6d6750"),
    "training": ("#2f6db3", "#5b9be0"),
    "evaluation": ("#3d8f57", "#66b87f"),
    "generation": ("#7a58c2", "#a68be8"),
    "replay": ("#4f6a8a", "#7f9cc0"),
}

TIMELINE: Mapping[str, _Shades] = {
    "call": ("#c9ced5", "#4a525c"),
    "call-launch": ("#8fa6c4", "#5d7698"),
    "call-sync": ("#9bb8a6", "#4f7560"),
    "call-harmful": ("#c62a3b", "#f2576a"),
    "call-copy": ("#d6c27c", "#86763a"),
    "call-allocate": ("#dd85a8", "#e8a0bd"),
    "call-load": ("#9c6f66", "#c0948b"),
    "call-graph": ("#de7445", "#f0916a"),
    "range": ("#dfe5ee", "#39424e"),
    "step": ("#c5d3e6", "#405573"),
    "step-outlier": ("#e58f84", "#b0564c"),
    "compute": ("#6f8fb8", "#6d8fbb"),
    "shut-down": ("#b9bfc7", "#545c66"),
    "cpu-work": ("#d9cdb4", "#5c543f"),
    **{f"python-{each.name}": each.colors for each in ACTIVITIES if each.colors},
}
"""Activity of threads: CUDA calls, ranges and sampled Python; steps, and other phases."""

PARTS: Mapping[str, _Shades] = {
    "gpu-work": ("#6f8fb8", "#6d8fbb"),
    "gpu": ("#6f8fb8", "#6d8fbb"),
    "other-gpu-work": ("#9fb3cc", "#4c6485"),
    "foreign-gpu-work": ("#7d8590", "#868f9a"),
    "at-start": ("#e0a9a4", "#8d5450"),
    "cpu": ("#b3874e", "#cfa36a"),
    "cpu-in-waits": ("#a12b59", "#e0628f"),
    "wide": ("#3d8f57", "#66b87f"),
    "near-peak": ("#9cb8a5", "#55705e"),
    "narrow": ("#d97d22", "#f0a04f"),
}
"""Parts of a step, sides of a pair, verdicts on load widths."""

RANKS: Mapping[str, _Shades] = {
    "rank-late": ("#c0392f", "#f4776c"),
    "rank-wait": ("#6a57b8", "#a795f0"),
}
"""Between ranks: time that others wait for a rank, and time that a rank waits for others."""

MEANINGS: Mapping[str, _Shades] = {
    **RANKS,
    **PARTS,
    **TIMELINE,
    **PHASES,
    **{each.name: each.colors for each in CAUSES},
    "data-loading": TIMELINE["python-data-loading"],
    **OPERATIONS,
    **CLASSES,
}
_IDLE = "idle: "


def color_class(name: str) -> str | None:
    """The CSS class with the colour of a meaning, such as `c-gemm`; None for any other name.

    `idle: launch-late` has the colour of its cause.
    """
    key = name.removeprefix(_IDLE).lower().replace(" ", "-")
    return f"c-{key}" if key in MEANINGS else None


def colors_css() -> str:
    """CSS variables of all colours, light and dark, and a class per meaning to fill marks."""
    light, dark = (
        "".join(f"--c-{name}:{shades[side]};" for name, shades in MEANINGS.items())
        for side in (0, 1)
    )
    fills = "".join(f".c-{name}{{fill:var(--c-{name})}}" for name in MEANINGS)
    in_dark = f"@media (prefers-color-scheme: dark) {{\n  :root {{{dark}}}\n}}\n"
    return f":root {{{light}}}\n{in_dark}{fills}\n"

"""Pages from the templates in `render/templates`.

The templates escape every text; SVG drawn in Python is the only markup inserted as it is.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from traceview import units
from traceview.errors import TraceviewError
from traceview.outputs import write_pieces
from traceview.records import record
from traceview.render.base.code_colors import colored
from traceview.render.base.code_spans import coded
from traceview.render.base.colors import colors_css
from traceview.render.base.safe_text import visible
from traceview.render.base.table_view import WHOLE
from traceview.version import __version__

_TEMPLATES = Path(__file__).parent.parent / "templates"
_COMPILED = _TEMPLATES / "__pycache__"
STYLES = ("report.css", "charts.css", "tables.css", "code.css", "timeline.css")
# A line ends with the dot between two parts, and no number stands apart from its unit.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|(?:ns|µs|ms|s|[kMGT]?B)\b)| (?=·)")
SCRIPT = "report.js"
"""The modules of `render/script`, bundled by `make script`."""


@record
class Style:
    """Style files beside the templates, and `more` rules, which hold nothing of the user's.

    `within` is a CSS selector: the rules then hold inside such elements alone.
    """

    files: tuple[str, ...]
    more: str = ""
    within: str = ""

    def text(self) -> str:
        files = ((_TEMPLATES / name).read_text("utf-8") for name in self.files)
        rules = "".join((colors_css(), *files, self.more))
        return _nested(rules, self.within) if self.within else rules


def rendered(template: str, style: Style, bundle: str = SCRIPT, /, **content: object) -> str:
    """The page that a template makes of its content, with the script of that bundle."""
    return "".join(rendered_pieces(template, style, bundle, **content))


def rendered_pieces(
    template: str, style: Style, bundle: str = SCRIPT, /, **content: object
) -> Iterator[str]:
    """As `rendered`, in pieces: a long one of ASCII stays so, which encoding only copies."""
    rules = Markup(style.text())  # noqa: S704 - our own files
    script = Markup((_TEMPLATES / bundle).read_text("utf-8"))  # noqa: S704 - our own file
    return (
        _environment()
        .get_template(template)
        .generate(style=rules, script=script, policy=_policy(rules, script), **content)
    )


def compile_templates(*templates: str) -> None:
    """Load templates for later: that is work of Python alone."""
    for template in templates:
        _environment().get_template(template)


def _policy(style: str, script: str) -> str:
    """The content security policy: this style and this script, and nothing from anywhere else."""
    allowed = f"script-src {_source_hash(script)}; style-src {_source_hash(style)}"
    return f"default-src 'none'; {allowed}; img-src data:"


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _nested(style: str, selector: str) -> str:
    """The style with its rules nested in a selector, which takes the place of the whole page."""
    rules = re.sub(r"(?m)^( *)(?::root|body)(?= \{)", r"\1&", style)
    return f"{selector} {{\n{rules}}}"


class _CompiledTemplates(BytecodeCache):
    """Templates compiled once and kept beside their source, as Python keeps its modules."""

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            bucket.bytecode_from_string(_compiled(bucket).read_bytes())

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        with suppress(OSError, TraceviewError):
            _COMPILED.mkdir(exist_ok=True)
            write_pieces(_compiled(bucket), (bucket.bytecode_to_string(),))


def _compiled(bucket: Bucket) -> Path:
    return _COMPILED / f"{bucket.key}.{__version__}.jinja"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        bytecode_cache=_CompiledTemplates(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = lambda text: visible(text, WHOLE)
    environment.filters["count"] = units.count
    environment.filters["coded"] = lambda text: coded(visible(text, WHOLE))
    environment.filters["colored"] = colored
    environment.filters["unbroken"] = lambda text: _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)
    return environment


def key(name: str) -> str:
    """A name as the id of an element."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower())

"""Pages from the templates in `render/templates`.

The templates escape every text, except SVG drawn in Python.
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
from traceview.render.base.code import coded, colored
from traceview.render.base.colors import colors_css
from traceview.render.base.safe_text import visible
from traceview.render.base.table_view import WHOLE
from traceview.version import __version__

_TEMPLATES = Path(__file__).parent.parent / "templates"
_COMPILED = _TEMPLATES / "__pycache__"
STYLES = ("report.css", "charts.css", "tables.css", "code.css", "timeline.css")
# Spaces that must not break: before a unit, and before a separating dot.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|(?:ns|µs|ms|s|[kMGT]?B)\b)| (?=·)")
SCRIPT = "report.js"
"""The bundle of the modules in `render/script`, written by `make script`."""


@record
class Style:
    """Style files in the templates folder, and `more` rules, which contain no user text.

    `within` is a CSS selector that limits all rules to the elements it matches.
    """

    files: tuple[str, ...]
    more: str = ""
    within: str = ""

    def text(self) -> str:
        files = ((_TEMPLATES / name).read_text("utf-8") for name in self.files)
        rules = "".join((colors_css(), *files, self.more))
        return _nested(rules, self.within) if self.within else rules


def rendered(template: str, style: Style, bundle: str = SCRIPT, /, **content: object) -> str:
    """Render a template with its content, the style, and the script `bundle`."""
    return "".join(rendered_pieces(template, style, bundle, **content))


def rendered_pieces(
    template: str, style: Style, bundle: str = SCRIPT, /, **content: object
) -> Iterator[str]:
    """The page of `rendered` in pieces, so that a long ASCII piece encodes as a mere copy."""
    rules = Markup(style.text())  # noqa: S704 - our own files
    script = Markup((_TEMPLATES / bundle).read_text("utf-8"))  # noqa: S704 - our own file
    return (
        _environment()
        .get_template(template)
        .generate(style=rules, script=script, policy=_policy(rules, script), **content)
    )


def compile_templates(*templates: str) -> None:
    """Load templates ahead of their use."""
    for template in templates:
        _environment().get_template(template)


def _policy(style: str, script: str) -> str:
    """The content security policy: only this style and this script are allowed."""
    allowed = f"script-src {_source_hash(script)}; style-src {_source_hash(style)}"
    return f"default-src 'none'; {allowed}; img-src data:"


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _nested(style: str, selector: str) -> str:
    """The style with its rules nested in a selector, which stands in for `:root` and `body`."""
    rules = re.sub(r"(?m)^( *)(?::root|body)(?= \{)", r"\1&", style)
    return f"{selector} {{\n{rules}}}"


class _CompiledTemplates(BytecodeCache):
    """Cache compiled templates in `__pycache__` beside their source, as Python does modules."""

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
    """Turn a name into the id of an element."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower())

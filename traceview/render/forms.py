"""What renders a type in a form, for `traceview.base.display`: modules and functions of render.

A renderer is imported when it is called: a `repr` needs no page. Types are named, which spares the
registry the import of types that nobody shows; class names are unique.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceview.render.document import Document

JSON: Mapping[str, tuple[str, str]] = {
    "report": ("Report", "report.json:REPORT"),
    "ranks": ("JobReport", "ranks.json:JOB"),
    "compare": ("RunComparison", "comparison.json:COMPARISON"),
    "gate": ("GateReport", "gate:GATE"),
    "history": ("History", "history:HISTORY"),
    "ptx": ("PtxReport", "kernels.json:KERNELS"),
    "ptx-diff": ("Diff", "kernels.json:DIFF"),
    "ptx-triton": ("UpgradeReport", "kernels.upgrade:UPGRADE"),
    "ptx-configs": ("PreselectionReport", "kernels.configurations:CONFIGURATIONS"),
    "bench": ("BenchDocument", "bench_json:BENCH"),
    "bench-program": ("ProgramSweep", "bench_json:PROGRAM"),
    "what-if": ("WhatIfReport", "what_if:WHAT_IF"),
    "doctor": ("_Doctor", "json:DOCTOR"),
    "try": ("_Tried", "json:TRIED"),
}
"""The type of each JSON output, and the shape of its document."""
DOCUMENTS = {
    "Report": "report.document:report_document",
    "JobReport": "ranks.document:job_document",
    "RunComparison": "comparison.document:comparison_document",
    "GateReport": "gate:gate_document",
    "WhatIfReport": "what_if:what_if_document",
    "History": "history:history_document",
}
"""What builds the document of an answer."""
FORMATS = {
    "markdown": "markdown:render_markdown",
}
"""What lays out a document, and so any answer."""
RENDERERS: Mapping[str, Mapping[str, str]] = {
    "text": {
        "object": "interactive.text:described",
        "GateReport": "gate:described",
        "History": "history:described",
        "WhatIfReport": "what_if:described",
        **dict.fromkeys(("PtxReport", "KernelReport", "Diff"), "interactive.kernels:kernel_text"),
    },
    "html": {"object": "interactive.html:snippet", "WhatIfReport": "what_if_html:snippet"},
    "figure": {"Result": "charts.layout:figure_of"},
    "page": {
        "Report": "report.html:render_html",
        "JobReport": "ranks.html:render_html",
        "RunComparison": "comparison.html:render_with_recordings",
        "WhatIfReport": "what_if_html:render_html",
        "History": "history:render_html",
        "PtxReport": "kernels.html:render_ptx_html",
        "Diff": "kernels.html:render_diff_html",
    },
    "json": {kind: "json:render_json" for kind, _ in JSON.values()},
    "pieces": {kind: "json:json_pieces" for kind, _ in JSON.values()},
    "screen": {
        "RunComparison": "comparison.text:render_text",
        "WhatIfReport": "what_if:render_text",
        "History": "history:render_text",
        "UpgradeReport": "kernels.upgrade:render_text",
        "PreselectionReport": "kernels.configurations:render_text",
        "ProgramSweep": "bench_text:render_program",
    },
}
"""What else renders types and their subtypes: a `repr`, a notebook's cell, a chart, whole pages."""


def renderer(kind: type, form: str) -> Callable[..., Any]:
    """The renderer of a type. Raises TypeError if it has no such form."""
    for name in (each.__name__ for each in kind.__mro__):
        if place := RENDERERS.get(form, {}).get(name):
            return function_at(place)
        if form in FORMATS and name in DOCUMENTS:
            return lambda answer: function_at(FORMATS[form])(document_of(answer))
    raise TypeError(f"{kind.__name__} has no {form}")


def document_of(answer: Any) -> Document:
    """The document of an answer. Raises KeyError if there is none for its class."""
    return function_at(DOCUMENTS[type(answer).__name__])(answer)


def function_at(place: str) -> Any:
    """What a place of the registry names, such as `history:HISTORY`."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"traceview.render.{module}"), name)

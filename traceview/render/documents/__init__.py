"""What each kind of answer shows, in reading order, for any format to lay out."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from traceview.render.documents.model import Document

_BUILDERS = {
    "Report": "report:report_document",
    "JobReport": "job:job_document",
    "RunComparison": "comparison:comparison_document",
    "GateReport": "gate:gate_document",
}
"""By class, module and function; a report does not import what shows a job."""


def document_of(answer: Any) -> Document:
    """The document of an answer. Raises KeyError if there is none for its class."""
    module, _, builder = _BUILDERS[type(answer).__name__].partition(":")
    document: Document = getattr(import_module(f"{__name__}.{module}"), builder)(answer)
    return document

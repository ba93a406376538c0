"""The framework whose library launched the kernels: remedies are written in its terms."""

from __future__ import annotations

from traceview import groups
from traceview.trace import Trace, fact
from traceview.vocabulary.frameworks import FRAMEWORKS, NO_FRAMEWORK, Framework

_LONGEST = 400


@fact
def terms(trace: Trace) -> Framework:
    """The framework of the recording; `NO_FRAMEWORK` if no name shows one, as in a C++ program."""
    for table, shows in (("kernels", Framework.launches), ("ranges", Framework.opens)):
        names = trace.recorded(table).texts("name")
        codes = groups.different(names.codes[names.codes >= 0])
        texts = [str(names.values[code])[:_LONGEST] for code in codes.tolist()]
        for each in FRAMEWORKS:
            if any(shows(each, text) for text in texts):
                return each
    return NO_FRAMEWORK


def framework(trace: Trace) -> str:
    """The name of the framework of the recording; empty if no name shows one."""
    return terms(trace).name

"""Short names of source lines: the file name, with folders where two files share it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from traceview.inspect.kernel_report import KernelReport
from traceview.ptx.model import SourceLine
from traceview.records import record
from traceview.render.base.safe_text import shortened, shortened_apart

_MOST_CELLS = 41


@record
class SourceNames:
    """The shortest path endings that are unique in a report."""

    _names: Mapping[str, str]

    @classmethod
    def of(cls, kernels: Iterable[KernelReport]) -> SourceNames:
        """Names for the files that the accesses of these kernels come from."""
        accesses = (access for kernel in kernels for access in kernel.accesses)
        names = _apart({access.source.file for access in accesses if access.source})
        short = shortened_apart(list(names.values()), _MOST_CELLS)
        return cls(dict(zip(names, short, strict=True)))

    def of_line(self, source: SourceLine | None) -> str:
        """The name of a line: `gelu.py:31`; `?` where unknown. Long names lose their middle."""
        if source is None:
            return "?"
        name = self._names.get(source.file)
        return f"{name or shortened(PurePath(source.file).name, _MOST_CELLS)}:{source.line}"


def _apart(files: Iterable[str]) -> dict[str, str]:
    by_name: dict[str, list[str]] = defaultdict(list)
    for file in files:
        by_name[PurePath(file).name].append(file)
    return {
        file: name if len(same) == 1 else _ending(file, same)
        for name, same in by_name.items()
        for file in same
    }


def _ending(file: str, others: Iterable[str]) -> str:
    """The shortest ending of the path that no other path has."""
    parts = PurePath(file).parts
    for count in range(2, len(parts)):
        ending = parts[-count:]
        if sum(PurePath(other).parts[-count:] == ending for other in others) == 1:
            return str(PurePath(*ending))
    return file

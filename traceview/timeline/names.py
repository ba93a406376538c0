"""The names of the rows of a timeline, each once, with the class that decides its colour."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from traceview import groups
from traceview.analyses.phases.phases import Phase
from traceview.facts.operations.cuda_api import CallKind
from traceview.facts.operations.kernel_classes import KernelClass
from traceview.records import record
from traceview.tables import Array, Integers, RowNumbers, Texts, constant, row_numbers
from traceview.tables.packed_texts import PackedTextColumn, PackedTexts
from traceview.vocabulary.activities import ACTIVITY_NAMES
from traceview.vocabulary.amounts import NAME_CHARACTERS
from traceview.vocabulary.causes import CAUSE_NAMES

# Classes of timeline rows: each has one colour and one entry in the legend.

COPIES = ("h2d", "d2h", "d2d", "p2p", "other", "migration")
_CALLS = {
    CallKind.OTHER: "call",
    CallKind.LAUNCH: "call-launch",
    CallKind.SYNCHRONIZE: "call-sync",
    CallKind.COPY: "call-copy",
    CallKind.COPY_ASYNC: "call-copy",
    CallKind.ALLOCATE: "call-allocate",
    CallKind.LOAD: "call-load",
    CallKind.LOOK_UP: "call-load",
    CallKind.GRAPH: "call-graph",
}
CLASSES: tuple[str, ...] = (
    *(f"kernel-{kind.label}" for kind in KernelClass),
    *(f"copy-{direction}" for direction in COPIES),
    "memset",
    "graph",
    *dict.fromkeys(_CALLS.values()),
    "call-harmful",
    "range",
    "step",
    "step-warm-up",
    "step-outlier",
    *(f"phase-{phase.label}" for phase in Phase),
    *(f"python-{doing}" for doing in ACTIVITY_NAMES),
    *(f"idle-{cause}" for cause in CAUSE_NAMES),
)
"""Published names of the classes; a row of the timeline refers to one by its index here."""
NUMBER = {name: number for number, name in enumerate(CLASSES)}

FIRST_KERNEL = NUMBER["kernel-gemm"]
"""The first class of kernels; the others follow in the order of KernelClass."""
FIRST_PHASE = NUMBER["phase-start-up"]
FIRST_DOING = NUMBER["python-cpu"]
FIRST_CAUSE = NUMBER[f"idle-{CAUSE_NAMES[0]}"]
CLASS_OF_CALL = tuple(NUMBER[_CALLS[kind]] for kind in CallKind)
HARMFUL = NUMBER["call-harmful"]


@record
class NameTable:
    """The names in use, renumbered: `place` maps a number of RowNames to the new number.

    `packed` are the labels, `classes` numbers of CLASSES, `whole` the full name where it differs
    (else empty). `launch` is the launch configuration of a kernel (see stream_lanes), −1 for none.
    """

    packed: PackedTexts
    classes: Integers
    whole: list[str]
    launch: Integers
    place: RowNumbers

    def __len__(self) -> int:
        return len(self.packed)

    def texts(self) -> list[str]:
        """The labels, decoded."""
        texts: list[str] = self.packed.every.tolist()
        return texts


@record
class _Part:
    """The names of one `add`; `row` is a row of `texts` and `whole` that has each name."""

    row: Array
    texts: Texts
    classes: Integers
    whole: Texts | None
    launch: Integers


@dataclass
class RowNames:
    """Distinct names; a row refers to its name by number.

    Some numbers may have no row. Names become str in `table`, for those in use only: a page shows
    a part of a million range names.
    """

    _parts: list[_Part] = field(default_factory=list)
    _count: int = 0

    def add(
        self,
        texts: Texts,
        classes: Array | int,
        whole: Texts | None = None,
        launch: Array | None = None,
    ) -> RowNumbers:
        """Add the names of rows and return the number of each row's name."""
        if isinstance(classes, int) and whole is None and launch is None:
            return self._add_of_one_class(texts, classes)
        classes = np.broadcast_to(classes, len(texts))
        keys = (texts.codes, classes, None if whole is None else whole.codes, launch)
        distinct = groups.group(*(key for key in keys if key is not None))
        none = constant(-1, distinct.size, np.int64)
        launches = none if launch is None else launch[distinct.first].astype(np.int64)
        return self._numbered(
            _Part(distinct.first, texts, classes[distinct.first].astype(np.int64), whole, launches),
            row_numbers(distinct.ids),
        )

    def _add_of_one_class(self, texts: Texts, kind: int) -> RowNumbers:
        """Number names by their text codes, without comparing rows; the last is the absent text."""
        count = int(texts.codes.max(initial=-1)) + 2
        row = np.zeros(count, np.int32)
        row[texts.codes] = np.arange(len(texts), dtype=np.int32)
        absent = len(texts) > 0 and bool(texts.codes.min() < 0)
        number = np.where(texts.codes < 0, count - 1, texts.codes) if absent else texts.codes
        none = constant(-1, count, np.int64)
        return self._numbered(
            _Part(row, texts, constant(kind, count, np.int64), None, none), row_numbers(number)
        )

    def _numbered(self, part: _Part, number: RowNumbers) -> RowNumbers:
        first = np.int32(self._count)
        self._parts.append(part)
        self._count += len(part.row)
        return number + first

    def __len__(self) -> int:
        return self._count

    @property
    def classes(self) -> Integers:
        """The class of each name."""
        return np.concatenate([np.zeros(0, np.int64), *(part.classes for part in self._parts)])

    def text(self, number: int) -> str:
        """The name with that number."""
        for part in self._parts:
            if number < len(part.row):
                return _bounded(part.texts.take(part.row[number : number + 1]))[0]
            number -= len(part.row)
        raise IndexError(number)

    def table(self, numbers: Iterable[RowNumbers]) -> NameTable:
        """The names that have these numbers."""
        used = np.zeros(len(self), bool)
        for some in numbers:
            used[some] = True
        texts: list[PackedTexts] = []
        whole: list[str] = []
        launch, first = [np.zeros(0, np.int64)], 0
        for part in self._parts:
            chosen = np.flatnonzero(used[first : first + len(part.row)])
            rows = part.row[chosen]
            texts.append(_packed(part.texts.take(rows)))
            whole += [""] * len(rows) if part.whole is None else _bounded(part.whole.take(rows))
            launch.append(part.launch[chosen])
            first += len(part.row)
        place = np.cumsum(used, dtype=np.int32) - np.int32(1)
        return NameTable(
            PackedTexts.joined(texts), self.classes[used], whole, np.concatenate(launch), place
        )


def _packed(texts: Texts) -> PackedTexts:
    """The names like `_bounded`, in bytes."""
    if isinstance(texts, PackedTextColumn) and not (texts.codes < 0).any():
        picked = texts.packed.picked(texts.codes)
        if int(picked.sizes.max(initial=0)) <= NAME_CHARACTERS:
            return picked
    return PackedTexts.encoded(_bounded(texts))


def _bounded(texts: Texts) -> list[str]:
    """The names, overlong ones without their middle; empty for an absent text."""
    names: list[str] = texts.decode().tolist()
    if (texts.codes < 0).any():
        names = [name or "" for name in names]
    if max(map(len, names), default=0) <= NAME_CHARACTERS:
        return names
    half = NAME_CHARACTERS // 2
    return [n if len(n) <= NAME_CHARACTERS else f"{n[:half]}…{n[-half:]}" for n in names]

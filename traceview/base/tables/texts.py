"""Columns of text: codes into distinct values, which may be built when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from traceview.base.tables import arrays
from traceview.base.tables.arrays import Array, Mask, TextValues, thrifty


class Texts:
    """A column of text, stored once: small integer codes into an array of distinct values.

    `codes` is int32, one per row, −1 for absent; `values` is an object array of str. Several
    columns may share one `values`, and `values` may hold texts that no row uses. If `values` is a
    function, it is called on first use.
    """

    __slots__ = ("_values", "codes")

    def __init__(
        self, codes: npt.NDArray[np.int32], values: TextValues | Callable[[], TextValues]
    ) -> None:
        self.codes = codes
        self._values = values

    @property
    def values(self) -> TextValues:
        """The distinct texts, by code."""
        if callable(self._values):
            self._values = self._values()
        return self._values

    def value(self, code: int) -> str:
        """The distinct text of that code."""
        return str(self.values[code])

    def values_of(self, codes: Array) -> list[str]:
        """The distinct texts of these codes."""
        return list(map(str, self.values[codes]))

    @classmethod
    def of(cls, texts: Iterable[str | None]) -> Texts:
        """Encode a sequence of str or None; values are in order of first appearance."""
        listed = list(texts)
        index = dict.fromkeys(listed)
        index.pop(None, None)
        return cls(arrays.places_of(listed, index), arrays.object_array(list(index)))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str | None:
        code = self.codes[row]
        return None if code < 0 else str(self.values[code])

    def take(self, rows: Array | slice) -> Texts:
        """The rows of an index array, a mask or a slice."""
        return Texts(arrays.picked(self.codes, rows), self._values)

    def thrifty(self) -> Texts:
        """This column, its code stored once if all codes are equal."""
        return Texts(thrifty(self.codes), self._values)

    def used(self) -> Texts:
        """This column with only the values that occur, each once."""
        # Code −1, absent, picks the last element.
        dense = np.full(int(self.codes.max(initial=-1)) + 2, -1, np.int32)
        dense[self.codes] = 0
        codes = np.flatnonzero(dense[:-1] == 0)
        distinct = Texts.of(self.values_of(codes))
        dense[codes], dense[-1] = distinct.codes, -1
        return Texts(dense[self.codes], distinct.values)

    def decode(self) -> npt.NDArray[np.object_]:
        """An object array with one str or None per row."""
        if not len(self.values):
            return np.full(len(self.codes), None, object)
        decoded = self.values[self.codes]
        decoded[self.codes < 0] = None
        return decoded

    def map(self, new: Sequence[str | None]) -> Texts:
        """Replace the i-th distinct value by `new[i]`; equal results share one code."""
        mapped = Texts.of(new)
        if (mapped.codes == np.arange(len(mapped))).all():
            return Texts(self.codes, mapped.values)
        # Code −1, absent, picks the last element.
        codes = arrays.picked(np.append(mapped.codes, np.int32(-1)), self.codes)
        return Texts(codes, mapped.values)

    def isin(self, wanted: Iterable[str]) -> Mask:
        """True for the rows whose text is one of `wanted`."""
        return self.matching(set(wanted).__contains__)

    def matching(self, test: Callable[[str], object]) -> Mask:
        """True for the rows whose text passes the test, which runs once per distinct text."""
        values = self.values
        # Code −1, absent, picks the last element.
        hit = np.zeros(len(values) + 1, bool)
        if len(self.codes) < len(values):
            # Few rows of a column that shares its values with others: the rest is not tested.
            hit[self.codes] = True
            used = np.flatnonzero(hit[:-1])
            hit[used] = np.fromiter(map(test, values[used]), bool, len(used))
        else:
            hit[:-1] = np.fromiter(map(test, values), bool, len(values))
        hit[-1] = False
        return np.array(arrays.picked(hit, self.codes))


class MadeTexts(Texts):
    """A text column built on demand; for few rows, only theirs is built.

    `some` builds the texts of these of `count` numbers without the others, `every` those of all,
    where that takes less time.
    """

    __slots__ = ("_count", "_some")

    # Building one text alone costs as much as this many built together.
    _FEW = 8

    def __init__(
        self,
        codes: npt.NDArray[np.int32],
        count: int,
        some: Callable[[Array], TextValues],
        every: Callable[[], TextValues] | None = None,
    ) -> None:
        super().__init__(codes, every or (lambda: some(np.arange(count))))
        self._count, self._some = count, some

    def __getitem__(self, row: int) -> str | None:
        code = self.codes[row : row + 1]
        return None if code[0] < 0 else str(self._some(code)[0])

    def take(self, rows: Array | slice) -> Texts:
        taken = super().take(rows)
        if not callable(self._values):
            # All texts are built already.
            return taken
        codes = taken.codes
        some, every = self._some, self._values
        if self._FEW * len(codes) > self._count:
            return type(self)(codes, self._count, some, every)
        used, places = np.unique(codes, return_inverse=True)
        absent = int(np.count_nonzero(used < 0))
        wanted = used[absent:]
        codes = places.astype(np.int32) - np.int32(absent)
        return MadeTexts(codes, len(wanted), lambda part: some(wanted[part]))

    def decode(self) -> npt.NDArray[np.object_]:
        few = callable(self._values) and self._FEW * len(self.codes) < self._count
        # Those of few rows are built alone here, too.
        return self.take(slice(None)).decode() if few else super().decode()


class TextsOneByOne(MadeTexts):
    """A text column of which each text costs the same, built alone or with others."""

    __slots__ = ()

    _FEW = 1


def rows_of(values: Array | Texts, rows: Array | slice) -> Array | Texts:
    """The rows of a column, numbers or text, by an index array, a mask or a slice."""
    return values.take(rows) if isinstance(values, Texts) else arrays.picked(values, rows)

"""Whether a kernel with other constexprs computes the same results as the unchanged kernel."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from traceview.base.records import record
from traceview.kernels.headless.compile_options import Equivalence
from traceview.kernels.headless.worker.forked_task import ForkedTask
from traceview.kernels.headless.worker.interpreter import (
    InterpretedKernel,
    NotRunnableError,
    tensors_of,
)
from traceview.kernels.headless.worker.sparse_memory import (
    Grid,
    LaunchSample,
    OutOfBoundsError,
    Region,
    SparseMemory,
    TensorSample,
    TooSlowError,
)


def grids_with(sample: LaunchSample, changed: Mapping[str, Any]) -> list[Grid]:
    """The grids that a launch with other constexprs may have, the likeliest first.

    That is one if the program passes a grid function, none if that fails. A fixed grid may count
    tiles of the old size: it comes fitted to the new size first, and unchanged last.
    """
    if sample.grid_function is not None:
        grid = sample.grid_with(changed)
        return [grid] if grid else []
    return [*_fitted(sample, changed), sample.grid]


def _fitted(sample: LaunchSample, changed: Mapping[str, Any]) -> Iterator[Grid]:
    """A fixed grid with each axis that counts tiles of a changed constexpr recounted."""
    sizes = set(_sizes(sample.arguments.values()))
    integers = {name: new for name, new in changed.items() if type(new) is int}
    for axis, blocks in enumerate(sample.grid):
        for name, new in integers.items():
            old = sample.arguments.get(name)
            if blocks == 1 or not isinstance(old, int) or min(old, new) < 1:
                continue
            for size in sorted(sizes):
                if -(-size // old) == blocks and size > old:
                    fitted = list(sample.grid)
                    fitted[axis] = -(-size // new)
                    yield fitted[0], fitted[1], fitted[2]
                    break


def _sizes(arguments: Any) -> Iterator[int]:
    for argument in arguments:
        if isinstance(argument, TensorSample):
            yield from argument.sizes
            yield argument.numel()
        elif isinstance(argument, tuple):
            yield from _sizes(argument)
        elif type(argument) is int:
            yield argument


def every(grid: Grid) -> list[Grid]:
    """All programs of a grid."""
    return [(x, y, z) for x, y, z in product(*map(range, grid))]


def corners(grid: Sequence[int]) -> list[Grid]:
    """The first and the last program of a grid, then one in the middle."""
    each = [tuple(0 for _ in grid), tuple(n - 1 for n in grid), tuple(n // 2 for n in grid)]
    return [(x, y, z) for x, y, z in dict.fromkeys(each)]


def within(corner: Grid, coarse: Sequence[int], grid: Grid) -> list[Grid]:
    """The programs of a grid that correspond to one program of a coarser grid."""
    axes = []
    for at, few, many in zip(corner, coarse, grid, strict=True):
        factor = -(-many // few) if few else 1
        start = min(at * factor, many - 1)
        axes.append(range(start, min(start + factor, many)))
    return [(x, y, z) for x, y, z in product(*axes)]


def first_and_last(grid: Grid, most: int) -> Iterator[Grid]:
    """Programs from both ends of a grid in turn, x fastest, as GPUs start them."""
    x, y, _ = grid
    count = math.prod(grid)
    for n in range(min(most, count)):
        at = n // 2 if n % 2 == 0 else count - 1 - n // 2
        yield at % x, at // x % y, at // (x * y)


# The programs of a kernel that have run so far, and what each has stored.


class ProgramRuns:
    """Runs programs of a kernel in memory of its own; `changed` replaces arguments.

    `seconds` is the CPU time of the last program.
    """

    def __init__(
        self,
        source: Any,
        sample: LaunchSample,
        grid: Grid,
        changed: Mapping[str, Any],
        deadline: float,
        *,
        positive: bool,
    ) -> None:
        tensors = tensors_of(source.signature, sample)
        self.memory = SparseMemory(tensors, deadline, positive=positive)
        self.grid, self.seconds = grid, 0.0
        self._kernel = InterpretedKernel(source, sample, self.memory, grid, changed)
        self._stored: dict[Grid, Mapping[int, npt.NDArray[np.int64]]] = {}
        self._is_changed = bool(changed)

    def run(self, programs: Iterable[Grid]) -> None:
        """Run the programs that have not run yet.

        Raises NotRunnableError where the kernel as it is fails or the interpreter cannot run it,
        OutOfBoundsError where it is changed and leaves its tensors, TooSlowError.
        """
        left = [program for program in programs if program not in self._stored]
        try:
            with self._kernel.ready():
                for program in left:
                    self._run(program)
        except TooSlowError:
            raise
        except OutOfBoundsError as error:
            if self._is_changed:
                raise
            raise NotRunnableError(f"as it is, it {error} of this launch") from None
        except Exception as error:
            text = " ".join(str(error).split())[:120]
            raise NotRunnableError(f"Triton's interpreter cannot run it ({text})") from None

    def stored(self, program: Grid, other: ProgramRuns) -> bool:
        """Whether a program has run and the other's programs have stored all that it stored."""
        offsets = self._stored.get(program)
        return offsets is not None and all(
            bool(region.marks[offsets[region.number]].all())
            for region in other.memory.regions
            if region.number in offsets
        )

    def _run(self, program: Grid) -> None:
        started = time.thread_time()
        self._kernel.run(program)
        self._stored[program] = self.memory.take_stored()
        self.seconds = time.thread_time() - started


# Part of the time that whole grids may take, as estimated from one program.
_WHOLE = 0.4
_MOST_PROGRAMS = 4096
_MORE_PROGRAMS = 48
# A rounding may fall the other way here and there.
_STRAY = 1e-3
_START: Grid = (0, 0, 0)


@record
class _Pair:
    """The kernel as it is and as changed, each with memory of its own and the same values."""

    old: ProgramRuns
    new: ProgramRuns
    deadline: float

    @property
    def comparable(self) -> bool:
        """Whether each has stored what the first and the last program of the other stored."""
        return all(
            one.stored(program, other)
            for one, other in ((self.new, self.old), (self.old, self.new))
            for program in (_START, (one.grid[0] - 1, one.grid[1] - 1, one.grid[2] - 1))
        )


def compare(
    source: Any, sample: LaunchSample, changed: Mapping[str, Any], budget_s: float
) -> Equivalence:
    """Run the kernel as it is and as changed in the interpreter, and compare the results.

    As many programs run as `budget_s`, in CPU time, allows. The grid for the changed constexprs is
    that of the program's grid function; a fixed grid is tried fitted to them, then as it is.
    """
    deadline = time.thread_time() + budget_s
    answer = Equivalence("unknown", "its grid for these sizes is not known")
    try:
        for grid in grids_with(sample, changed):
            answer = _on_grid(source, sample, changed, grid, deadline)
            fitted = sample.grid_function is None and grid != sample.grid
            if answer.verdict == "same":
                return Equivalence("same", answer.detail, grid if fitted else None)
    except NotRunnableError as error:
        return Equivalence("unknown", str(error))
    except TooSlowError:
        return Equivalence("unknown", f"that takes more than {budget_s:g} s in the interpreter")
    return answer


def _on_grid(
    source: Any, sample: LaunchSample, changed: Mapping[str, Any], grid: Grid, deadline: float
) -> Equivalence:
    for positive in (False, True):
        pair = _Pair(
            ProgramRuns(source, sample, sample.grid, {}, deadline, positive=positive),
            ProgramRuns(source, sample, grid, changed, deadline, positive=positive),
            deadline,
        )
        answer = _compared(pair)
        if answer:
            return answer
    return Equivalence("unknown", "its results are not finite for made-up values")


def _compared(pair: _Pair) -> Equivalence | None:
    pair.old.run([_START])
    try:
        count = math.prod(pair.old.grid) + math.prod(pair.new.grid)
        left = pair.deadline - time.thread_time()
        if count <= _MOST_PROGRAMS and count * pair.old.seconds <= _WHOLE * left:
            pair.old.run(every(pair.old.grid))
            pair.new.run(every(pair.new.grid))
            return _judged(pair, whole=True)
        _run_corners(pair)
        answer = _judged(pair, whole=False)
        if answer is None or answer.verdict != "unknown":
            return answer
        # Tiles may be numbered in another order: programs from both ends of the grids.
        ends = (first_and_last(runs.grid, _MORE_PROGRAMS) for runs in (pair.old, pair.new))
        for old, new in zip_longest(*ends):
            pair.old.run([old] if old else [])
            pair.new.run([new] if new else [])
            if pair.comparable:
                break
        return _judged(pair, whole=False)
    except OutOfBoundsError as error:
        return Equivalence("differs", f"it {error}")


def _run_corners(pair: _Pair) -> None:
    """Run corner programs of one kernel and those of the other that store the same elements."""
    coarse = [min(x, y) for x, y in zip(pair.old.grid, pair.new.grid, strict=True)]
    for corner in corners(coarse):
        programs = (within(corner, coarse, pair.old.grid), within(corner, coarse, pair.new.grid))
        left = pair.deadline - time.thread_time()
        if pair.comparable and sum(map(len, programs)) * pair.old.seconds > _WHOLE * left:
            return
        pair.old.run(programs[0])
        pair.new.run(programs[1])


def _judged(pair: _Pair, whole: bool) -> Equivalence | None:
    exact, some = True, False
    for old, new in zip(pair.old.memory.regions, pair.new.memory.regions, strict=True):
        (at, bits), (new_at, new_bits) = old.elements(), new.elements()
        name = " and ".join(old.names)
        if whole and not np.array_equal(at, new_at):
            more, less = len(np.setdiff1d(new_at, at)), len(np.setdiff1d(at, new_at))
            what = f"it leaves {less:,} elements of {name} unwritten"
            if more:
                what = f"it stores {more:,} elements of {name} that it does not store as it is"
            return Equivalence("differs", what)
        both, of_old, of_new = np.intersect1d(at, new_at, return_indices=True)
        if not len(both):
            continue
        before, after = old.format.decoded(bits[of_old]), old.format.decoded(new_bits[of_new])
        if old.format.is_float and np.isfinite(before).mean() <= 0.5:
            return None
        wrong = _different(before, after, old)
        if wrong > _STRAY * len(both):
            values = f"{wrong:,} of {len(both):,} values"
            return Equivalence("differs", f"in the interpreter {values} of {name} differ")
        exact &= bool(np.array_equal(bits[of_old], new_bits[of_new]))
        some = True
    if not some or not (whole or pair.comparable):
        return Equivalence("unknown", "no part of the grid could be compared")
    return Equivalence("same", "bit for bit" if exact else "up to the order of additions")


def _different(before: Any, after: Any, region: Region) -> int:
    """Number of values that differ by more than another order of additions explains."""
    if not region.format.is_float:
        allowed = 1 if region.format.name in ("i8", "u8") else 0
        return int((np.abs(before - after) > allowed).sum())
    finite = np.isfinite(before) & np.isfinite(after)
    alike = (before == after) | (np.isnan(before) & np.isnan(after))
    scale = np.sqrt(np.mean(np.square(before[finite]))) if finite.any() else 0.0
    with np.errstate(invalid="ignore"):
        bound = region.format.tolerance * np.maximum(np.maximum(abs(before), abs(after)), scale)
        close = finite & (np.abs(before - after) <= bound)
    return int((~(alike | close)).sum())


# Comparisons in forked processes, which run while the kernel is being compiled.

# Wall time per CPU time on a busy machine.
_PATIENCE = 2.5


class BackgroundComparison:
    """A comparison in a process of its own."""

    def __init__(
        self, source: Any, sample: LaunchSample, changed: Mapping[str, Any], budget_s: float
    ) -> None:
        # Imported here once and not in each process.
        import triton.runtime.interpreter  # noqa: F401

        self._end = time.monotonic() + _PATIENCE * budget_s
        self._task = ForkedTask(lambda: asdict(compare(source, sample, changed, budget_s)))

    def result(self) -> Equivalence:
        """Wait for the answer, at most as long as the budget."""
        try:
            return Equivalence(**self._task.result(max(0.0, self._end - time.monotonic())))
        except (TimeoutError, ChildProcessError) as error:
            reason = "takes too long" if isinstance(error, TimeoutError) else "crashes"
            return Equivalence("unknown", f"Triton's interpreter {reason}")

    def close(self) -> None:
        """End the process."""
        self._task.close()

"""The programs of a kernel that have run so far, and what each has stored."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from traceview.headless.worker.equivalence.interpreted_kernel import (
    InterpretedKernel,
    NotRunnableError,
    tensors_of,
)
from traceview.headless.worker.equivalence.launch_sample import Grid, LaunchSample
from traceview.headless.worker.equivalence.sparse_memory import (
    OutOfBoundsError,
    SparseMemory,
    TooSlowError,
)


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

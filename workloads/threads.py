"""Launch from three threads at once, each on its own stream.

    python workloads/threads.py                 each thread has ranges: step_N on its own timeline
    python workloads/threads.py --main-ranges   only the main thread has ranges, the threads have none

A kernel belongs to the range that its launching thread has open. If that thread has none, the
range can only be inferred: the threads work for whatever the main thread is in.

Expect: `kernel-share` attributes every kernel of the loop; with --main-ranges all of it as inferred, and none with --strict.

The ranges: thread_N_step_N on each thread; with --main-ranges, step_N on the main thread.
"""  # noqa: E501 (the finding is one line, for a program to read)

import argparse
import threading
from contextlib import AbstractContextManager, nullcontext, suppress

import torch
from arguments import Arguments, count
from ranges import annotate

THREADS = 3


class Launcher(threading.Thread):
    """Runs GEMMs once per step, when the barrier lets all threads start it."""

    def __init__(self, number: int, given: argparse.Namespace, begin: threading.Barrier) -> None:
        super().__init__(name=f"launcher_{number}")
        self.number, self.given, self.begin = number, given, begin
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self.multiply()
        except Exception as error:
            # Otherwise the other threads would wait for this one.
            self.failure = error
            self.begin.abort()

    def multiply(self) -> None:
        cuda = self.given.device == "cuda"
        stream = torch.cuda.Stream() if cuda else None
        with torch.cuda.stream(stream) if cuda else nullcontext():
            x = torch.full((self.given.dim, self.given.dim), 1e-3, device=self.given.device)
            for step in range(self.given.steps):
                self.begin.wait()
                with self.range(step):
                    for _ in range(self.given.kernels):
                        x = (x @ x).clamp_(-1.0, 1.0)
                self.begin.wait()
        if stream is not None:
            stream.synchronize()

    def range(self, step: int) -> AbstractContextManager[object]:
        if self.given.main_ranges:
            return nullcontext()
        return annotate(f"thread_{self.number}_step_{step}")


def main() -> None:
    parser = Arguments(__doc__, steps=6)
    parser.add_argument("--dim", type=count, help="default: 2048 on a GPU, else 64")
    parser.add_argument("--kernels", type=count, default=8, help="GEMMs per thread per step")
    parser.add_argument("--main-ranges", action="store_true", help="ranges on the main thread only")
    given = parser.given()
    given.dim = given.dim or (2048 if given.device == "cuda" else 64)
    begin = threading.Barrier(THREADS + 1)
    launchers = [Launcher(number, given, begin) for number in range(THREADS)]
    for launcher in launchers:
        launcher.start()
    with suppress(threading.BrokenBarrierError):
        for step in range(given.steps):
            with annotate(f"step_{step}") if given.main_ranges else nullcontext():
                # The first wait lets the threads start, the second lasts until they have launched.
                begin.wait()
                begin.wait()
    for launcher in launchers:
        launcher.join()
    failures = [launcher.failure for launcher in launchers if launcher.failure]
    # The error of the thread that failed, not of those it stopped.
    failures.sort(key=lambda failure: isinstance(failure, threading.BrokenBarrierError))
    if failures:
        raise failures[0]
    if given.device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()

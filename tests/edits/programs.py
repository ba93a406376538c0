"""Small programs whose replays are computed by hand. Times are in µs here, in ns in the recording.

A kernel behind another one starts 1 µs after its end; a launch takes 6 µs to an idle GPU; a
synchronization returns 5 µs after the work.
"""

from tests.build import Export

STEPS, KERNELS = 6, 4


def us(start: float, end: float) -> tuple[int, int]:
    return round(start * 1_000), round(end * 1_000)


def gpu_bound() -> Export:
    """Per step 4 kernels of 100 µs, each 1 µs behind the other: 404 µs; the CPU is far ahead."""
    export = Export()
    for step in range(STEPS):
        first = 20 * step
        export.range(f"step_{step}", *us(first, first + 18))
        for number in range(KERNELS):
            call = first + 5 * number
            start = 6 + 101 * (KERNELS * step + number)
            export.launch(us(call, call + 2), us(start, start + 100), name=f"gemm_{number}")
    return export


def launch_bound(samples: bool = False) -> Export:
    """Per step 4 launches, each 5 µs, and 45 µs of Python before each: 200 µs; kernels of 10 µs.

    With samples, two in each pause, at data.py:24 within the step and at train.py:9 before it.
    """
    export = Export()
    for step in range(STEPS):
        first = 200 * step
        export.range(f"step_{step}", *us(first, first + 155))
        for number in range(KERNELS):
            call = first + 50 * number
            export.launch(us(call, call + 5), us(call + 6, call + 16), name="k")
            place = ("data.py", 24, "load") if number < KERNELS - 1 else ("train.py", 9, "<module>")
            frames = [place, *([("train.py", 9, "<module>")] if number < KERNELS - 1 else [])]
            for time in (call + 10, call + 30) if samples else ():
                export.python_sample(us(time, time)[0], *frames)
    return export


def synchronizing() -> Export:
    """Per step a kernel of 100 µs, a wait for it, and 50 µs of Python: 161 µs."""
    export = Export()
    for step in range(STEPS):
        first = 161 * step
        export.range(f"step_{step}", *us(first, first + 112))
        export.launch(us(first, first + 5), us(first + 6, first + 106))
        export.sync("cudaStreamSynchronize_v3020", *us(first + 5, first + 111))
    return export


def copying() -> Export:
    """Per step a copy of 100 µs to the GPU and a kernel of 50 µs: 152 µs; the CPU is far ahead."""
    export = Export()
    for step in range(STEPS):
        first, start = 20 * step, 6 + 152 * step
        export.range(f"step_{step}", *us(first, first + 12))
        copy = us(start, start + 100)
        export.copy(us(first, first + 2), copy, source="pinned", bytes=1 << 20)
        export.launch(us(first + 5, first + 7), us(start + 101, start + 151))
    return export

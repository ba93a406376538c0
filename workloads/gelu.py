"""GELU in six ways, each under its own range: the formula in PyTorch, torch's own, and four more.

    python workloads/gelu.py

The arithmetic is next to nothing: the time is that of moving the bytes. Written out in PyTorch the
formula is nine kernels, each of which reads and writes the whole tensor. One fused kernel moves it
once, and then it matters how: 32 bits a thread and instruction, or 128.

Expect: `kernel-share` finds the formula at several times the time of the fused versions, and `roofline` finds the wide ones near the peak of the memory.

The ranges: warm_up and step_N, around one range a version. See kernels/gelu.py.
"""  # noqa: E501 (the finding is one line, for a program to read)

from versions import main

if __name__ == "__main__":
    main("gelu", 1 << 26, __doc__)

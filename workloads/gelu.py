"""Compute GELU in six versions, each in its own range.

    python workloads/gelu.py

There is little arithmetic; moving the bytes takes the time. Written out in PyTorch the formula is
nine kernels, each of which reads and writes the whole tensor. A fused kernel moves it once, and
then the width matters: 32 bits per thread per instruction, or 128.

Expect: `kernel-share` finds the formula several times slower than the fused versions, and `roofline` finds the wide ones near peak bandwidth.

The ranges: warm_up and step_N around one range per version. See kernels/gelu.py.
"""  # noqa: E501 (the finding is one line, for a program to read)

from versions import main

if __name__ == "__main__":
    main("gelu", 1 << 26, __doc__)

"""Compute softmax over rows in every version of kernels/softmax.py, each in its own range.

    python workloads/softmax.py

Written out in PyTorch it is five kernels that read or write the matrix eight times. In one kernel
a row stays on the chip from its maximum to its quotients: one read and one write. Fusing is not
enough: with one thread per row, neighbouring threads read far apart, and it is the slowest of all.

Expect: `kernel-share` finds the formula slower than torch.softmax and the fused versions, and one thread per row slower than all.

The ranges: warm_up and step_N around one range per version.
"""  # noqa: E501 (the finding is one line, for a program to read)

from versions import main

if __name__ == "__main__":
    main("softmax", 4096, __doc__)

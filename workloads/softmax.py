"""Softmax of rows in every way of kernels/softmax.py, each under its own range.

    python workloads/softmax.py

Written out in PyTorch it is five kernels and eight trips to memory. In one kernel a row stays on
the chip between its maximum, its sum and its quotients: one read and one write. One kernel alone is
no remedy: with a thread a row, neighbouring threads read far apart, and it is the slowest of all.

Expect: `kernel-share` finds the formula slower than torch.softmax and the fused versions, and a thread a row slower than all.

The ranges: warm_up and step_N, around one range a version.
"""  # noqa: E501 (the finding is one line, for a program to read)

from versions import main

if __name__ == "__main__":
    main("softmax", 4096, __doc__)

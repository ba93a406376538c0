"""Copy a tensor with neighbouring threads at neighbouring elements, 2 apart, and 32 apart.

    python workloads/coalescing.py

Every version reads and writes the same bytes once. Memory moves sectors of 32 bytes. Where the
threads of a warp are 32 elements apart, each uses 4 bytes of its sector, and the other 28 are
fetched again for another thread.

Expect: `kernel-share` finds the copy with threads 32 apart several times slower than the one with neighbouring threads, which does the same work.

The ranges: warm_up and step_N around one range per version. See kernels/strided_copy.py.
"""  # noqa: E501 (the finding is one line, for a program to read)

from versions import main

if __name__ == "__main__":
    main("strided_copy", 1 << 26, __doc__)

"""One branch, taken by every other element: within each warp, by whole warps, and without a branch.

    python workloads/divergence.py

Where the 32 threads of a warp disagree, it walks both ways, one after the other. Where whole warps
agree, each walks one; and where the ways differ in numbers alone, these can be selected. The
results are the same. That the branch is gone need not make it faster: kernels/divergence.py tells
why branch_free, with half the instructions, took as long as branch_by_parity on an H200.

Expect: `kernel-share` finds branch_by_parity about twice as slow as branch_by_warp, and branch_free no faster.

The ranges: warm_up and step_N, around one range a version. See kernels/divergence.py. All versions
are kernels of a GPU: a CPU has no warps, and says so.
"""  # noqa: E501 (the finding is one line, for a program to read)

from versions import main

if __name__ == "__main__":
    main("divergence", 1 << 24, __doc__)

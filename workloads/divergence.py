"""Branch on every other element: within each warp, by whole warps, and without a branch.

    python workloads/divergence.py

If the 32 threads of a warp disagree, the warp executes both paths, one after the other. If whole
warps agree, each executes one. If the paths differ only in values, these can be selected without a
branch. The results are the same. Removing the branch need not make it faster:
kernels/divergence.py explains why branch_free, with half the instructions, took as long as
branch_by_parity on an H200.

Expect: `kernel-share` finds branch_by_parity about twice as slow as branch_by_warp, and branch_free no faster.

The ranges: warm_up and step_N around one range per version. See kernels/divergence.py. All
versions need a GPU: a CPU has no warps.
"""  # noqa: E501 (the finding is one line, for a program to read)

from versions import main

if __name__ == "__main__":
    main("divergence", 1 << 24, __doc__)

"""One branch, taken by every other element: within each warp, by whole warps, and without a branch.

    python workloads/divergence.py

Where the 32 threads of a warp disagree, it walks both ways, one after the other. Where whole warps
agree, each walks one; and where the ways differ in numbers alone, these can be selected. The
results are the same.

Expect: `kernel-share` finds branch_by_parity about twice as slow as branch_by_warp and branch_free.

The ranges: warm_up and step_N, around one range a version. See kernels/divergence.py. All versions
are kernels of a GPU: a CPU has no warps, and says so.
"""

from versions import main

if __name__ == "__main__":
    main("divergence", 1 << 24)

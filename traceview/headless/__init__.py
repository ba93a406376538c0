"""Run a Triton or PyTorch script without a GPU, in a process of its own, and gather its kernels.

It knows no trace and judges no kernel. What breaks with a new Triton or PyTorch is in `fakes`.
"""

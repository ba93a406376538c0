"""Run a Triton or PyTorch script without a GPU, in a process of its own, and gather its kernels.

It knows nothing of traces or findings. What a new Triton or PyTorch may break is in `fakes`.
"""

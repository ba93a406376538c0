"""Bytes and FLOP of kernels by source, and the peak rates of the GPUs that ran them."""

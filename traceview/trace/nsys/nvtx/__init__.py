"""Payloads that libraries attach to NVTX ranges, and the NCCL calls in them."""

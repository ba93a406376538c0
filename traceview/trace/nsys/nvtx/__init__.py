"""What libraries attach to NVTX ranges: payloads, and the calls of NCCL in them."""

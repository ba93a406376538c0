"""Find and run ptxas, nvdisasm, nvcc, NVRTC and demanglers. It starts processes, judges nothing."""

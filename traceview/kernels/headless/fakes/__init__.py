"""Stand-ins for the GPU parts of Triton and PyTorch. They run in the worker process only."""

"""Python stacks of a torch.profiler trace: from traced calls to stacks at given times."""

"""The rule on narrow accesses of global memory: the cause, proven or inferred, and remedies."""

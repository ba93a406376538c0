"""Whether a kernel with other constexprs computes the same results as the unchanged kernel.

Both are run in Triton's interpreter on the arguments of a launch, with made-up values in its
tensors. The tensors are mapped sparsely, so that even large ones cost only what is touched, and
every access is checked against their bounds.
"""

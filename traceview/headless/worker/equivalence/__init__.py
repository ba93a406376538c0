"""Whether a kernel with other constexprs computes what it computes as it is.

Both are run in Triton's interpreter on the arguments of a launch, with made-up values in its
tensors. These are mapped sparsely, so that tensors of any size cost only what is touched, and
every access is checked against their bounds.
"""

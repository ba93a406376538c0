"""Labels of kernels: distinct names of a trace, in words where a library's record has them."""

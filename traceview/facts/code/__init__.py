"""Code of kernels joined to their launches, and the names by which compilers are recognized."""

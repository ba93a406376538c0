"""Readable names of kernels: what a library's kernel computes, from its symbol. Text alone."""

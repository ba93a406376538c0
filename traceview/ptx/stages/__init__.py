"""Triton's intermediate code (TTIR, TTGIR, LLIR) as lines with their source lines."""

"""Numbers that several layers share, each with its source."""

from __future__ import annotations

WARP_THREADS = 32
"""Threads per warp, on every GPU so far (CUDA C++ Programming Guide, technical specifications)."""
DEVIATIONS_PER_MAD = 1.4826
"""A standard deviation in median absolute deviations (MAD) of a normal distribution: 1 ÷ Φ⁻¹(¾)."""
NAME_CHARACTERS = 4000
"""Characters of a recorded name or path that are read and shown: 79 of the 80 longest texts in
tests/data/kernel_names.tsv have fewer than 1,400. No pattern may run over a hostile megabyte."""

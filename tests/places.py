"""Folders that tests read: recordings, PTX files, Triton kernels, the repository itself."""

from pathlib import Path

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parent
DATA = TESTS / "data"
PTX_FILES = TESTS / "ptx" / "data"
TRITON_KERNELS = TESTS / "ptx" / "kernels"

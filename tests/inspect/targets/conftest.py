"""A script with a kernel, for the tests of Python targets."""

import pytest

from tests.inspect.targets.python_scripts import HEADER, KERNEL


@pytest.fixture
def script(tmp_path):
    """Write a script that defines the kernel `fill`, then goes on as given."""

    def write(rest: str = "", name: str = "script.py") -> str:
        (tmp_path / name).write_text(HEADER + KERNEL + rest)
        return str(tmp_path / name)

    return write

"""How the compiled library is built; everything else about the project is in pyproject.toml.

It is a library for ctypes that knows nothing of Python. So one wheel per platform serves every
version of Python, and its tag says so: py3-none-PLATFORM. Where nothing can be compiled, or
TRACEVIEW_PURE is set, the wheel has no library and any machine can install it: py3-none-any.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

LIBRARY = Extension(
    "traceview.trace.sqlite.pages",
    sorted(map(str, Path("traceview").rglob("*.c"))),
    depends=sorted(map(str, Path("traceview").rglob("*.h"))),
    extra_compile_args=["-O3"],
    # Without a compiler numpy takes its place.
    optional=True,
)


class BuildLibrary(build_ext):
    """Build a library whose name does not carry the version of Python."""

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', os.sep)}.so"


class PlatformWheel(bdist_wheel):
    """Tag the wheel by what is in it."""

    def get_tag(self) -> tuple[str, str, str]:
        built = Path(self.bdist_dir).glob("traceview/trace/sqlite/pages.so")
        return ("py3", "none", super().get_tag()[2] if any(built) else "any")


setup(
    ext_modules=[] if os.environ.get("TRACEVIEW_PURE") else [LIBRARY],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)

"""How the C library is built; everything else about the project is in pyproject.toml.

It is a library for ctypes that knows nothing of Python. So one wheel per platform serves every
version of Python, and its tag says so: py3-none-PLATFORM.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError, PlatformError

LIBRARY = Extension(
    "traceview.traces.trace.sqlite.pages",
    sorted(map(str, Path("traceview").rglob("*.c"))),
    depends=sorted(map(str, Path("traceview").rglob("*.h"))),
    extra_compile_args=["-O3"],
)


class BuildLibrary(build_ext):
    """Build a library whose name does not carry the version of Python."""

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', os.sep)}.so"

    def build_extension(self, extension: Extension) -> None:
        try:
            super().build_extension(extension)
        except (CompileError, LinkError, PlatformError) as error:
            raise CompileError(
                f"traceview is built with a C compiler, which did not work here ({error}); install "
                "one (Debian, Ubuntu: apt install gcc; macOS: xcode-select --install), or install "
                "a wheel of traceview, which needs none"
            ) from None


class PlatformWheel(bdist_wheel):
    """Tag the wheel for every Python on its platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


setup(ext_modules=[LIBRARY], cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel})

"""The platforms that get a wheel with the C library.

Any machine can build all of them: the C compiler of Zig, which PyPI has (`ziglang`), carries the
headers and stub libraries of these systems, and links against the oldest release that is named. The
library needs a few functions of libc (memcmp, memcpy, memmem, memset) and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Platform:
    """A platform by the tag of its wheel, and what Zig calls it."""

    tag: str
    target: str
    machine: Literal["x86_64", "aarch64"]
    # The libc that the library may name.
    libc: str
    # The newest version of a symbol of glibc that it may need.
    newest_glibc: tuple[int, ...] = ()


GLIBC, MUSL, DARWIN = "libc.so.6", "libc.so", "/usr/lib/libSystem.B.dylib"
PLATFORMS = (
    Platform("manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17", "x86_64", GLIBC, (2, 17)),
    Platform("manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17", "aarch64", GLIBC, (2, 17)),
    Platform("musllinux_1_2_x86_64", "x86_64-linux-musl", "x86_64", MUSL),
    Platform("musllinux_1_2_aarch64", "aarch64-linux-musl", "aarch64", MUSL),
    Platform("macosx_10_13_x86_64", "x86_64-macos.10.13", "x86_64", DARWIN),
    Platform("macosx_11_0_arm64", "aarch64-macos.11.0", "aarch64", DARWIN),
)

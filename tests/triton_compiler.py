"""Triton kernels compiled within the test's own process, each variant once a session."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CAPABILITIES = {"sm_80": 80, "sm_90": 90, "sm_100": 100, "sm_120": 120}


class Made(NamedTuple):
    """What Triton made of a kernel."""

    ptx: str
    cubin: bytes
    ttgir: str


@pytest.fixture(scope="session")
def triton_cache(shared_folder: Path) -> Path:
    """The folder where Triton finds what any test of this session has compiled."""
    return shared_folder / "triton"


@pytest.fixture(scope="session")
def compile_triton(triton_cache: Path) -> Iterator[Callable[..., Made]]:
    """Compile a kernel for a signature in Triton's notation, an architecture, and options.

    Constexprs that have no notation, such as a layout of Gluon, are given as `constants`.
    """
    pytest.importorskip("triton", reason="compiles with Triton")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(triton_cache))
        patch.delenv("TRITON_INTERPRET", raising=False)
        # What is the default anyway, and what Triton 3.9 warns of unless it is said.
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        yield cache(_compiled)


def _compiled(
    kernel: Any, signature: str, arch: str, constants: tuple[Any, ...] = (), **options: int
) -> Made:
    import triton
    from triton.backends.compiler import GPUTarget

    source = _source(kernel, signature.split(", "), constants)
    target = GPUTarget("cuda", CAPABILITIES[arch], 32)
    asm = triton.compile(source, target=target, options=options).asm
    return Made(asm["ptx"], asm["cubin"], asm["ttgir"])


def _source(kernel: Any, entries: list[str], constants: tuple[Any, ...]) -> Any:
    values: dict[tuple[int], Any] = {
        (len(entries) + at,): value for at, value in enumerate(constants)
    }
    types, attributes = ["constexpr"] * len(kernel.arg_names), {}
    for at, entry in enumerate(entries):
        type_, _, divisor = entry.partition(":")
        if type_.isdigit():
            values[at,] = int(type_)
            continue
        types[at] = type_
        if divisor:
            attributes[at,] = [["tt.divisibility", int(divisor)]]
    signature: Mapping[str, str] = dict(zip(kernel.arg_names, types, strict=True))
    return _kind_of_source(kernel)(kernel, signature, values, attributes)


def _kind_of_source(kernel: Any) -> Any:
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

    return GluonASTSource if isinstance(kernel, GluonJITFunction) else ASTSource

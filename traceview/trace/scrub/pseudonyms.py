"""Pseudonyms for the names of a trace, for `scrub --names`.

A pseudonym is a hash of the name alone: the same name has the same one in every trace, so traces
can be compared. Whoever guesses a name can therefore check the guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NUMBER = re.compile(r"(.*?[^\d.])?(\d{1,6})", re.DOTALL)
_PSEUDONYM = re.compile(r"(?:kernel|range|function|file)_[0-9a-f]{10}(?:_\d{1,6}|\.\w{1,4})?")
# Namespaces of the libraries whose kernels and functions are known by name.
_NAMESPACES_LISTED = """
at c10 caffe2 cask_plugin cask_plugin__5x_cudnn cooperative_groups cub cuda cudnn cute cutlass
cutlass__5x_cudnn cublas cublasLt flash fmha internal native nv nvinfer1 nvfuser std thrust torch
"""
_NAMESPACES = frozenset(_NAMESPACES_LISTED.split())
_WORDS_LISTED = """
anonymous bool bfloat16 char class const constexpr double enum false float half int int2 int4
lambda long namespace operator short signed size_t static struct true uint2 uint4 unnamed type
unsigned void volatile int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t __half
__half2 __nv_bfloat16 __nv_bfloat162 float2 float4 float8 instance auto decltype nullptr_t T T0 T1
T2 T3 with
"""
_WORDS = frozenset(_WORDS_LISTED.split())
_QUALIFIED = re.compile(r"~?[A-Za-z_]\w*(?:::~?[A-Za-z_]\w*)*")


def pseudonym(kind: str, name: str) -> str:
    """`kind` and the first 40 bits of a hash of the name."""
    from hashlib import sha256

    return f"{kind}_{sha256(f'traceview {kind} {name}'.encode()).hexdigest()[:10]}"


def is_pseudonym(name: str) -> bool:
    """Whether a name is one that this module made."""
    return _PSEUDONYM.fullmatch(name) is not None


def numbered_pseudonym(kind: str, name: str) -> str:
    """A pseudonym that keeps the number at the end of a name, which counts steps and layers."""
    match = _NUMBER.fullmatch(name)
    if match and match[1]:
        return f"{pseudonym(kind, match[1])}_{match[2]}"
    return pseudonym(kind, name)


def of_library(name: str, is_known: Callable[[str], object]) -> bool:
    """Whether a library's kernel has this name, and nothing in it comes from the user's code.

    `is_known` recognizes the kernels of libraries. A type or function of a template argument
    outside the libraries' namespaces makes the name private.
    """
    if not is_known(name):
        return False
    found = _QUALIFIED.findall(name)
    first = next((each for each in found if each not in _WORDS), "")
    return all(
        each in _WORDS or each.partition("::")[0] in _NAMESPACES or (each == first)
        for each in found
        if not each.startswith("::")
    )

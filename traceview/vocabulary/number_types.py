"""Short names of number types, as data sheets write them: fp32, bf16."""

from __future__ import annotations

import re

TYPES = {
    "float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16",
    "__half": "fp16", "__nv_bfloat16": "bf16", "long": "int64", "int": "int32", "bool": "bool",
    "unsigned char": "uint8", "signed char": "int8", "short": "int16",
    "f64": "fp64", "f32": "fp32", "tf32": "tf32", "bf16": "bf16", "f16": "fp16", "fp16": "fp16",
    "fp32": "fp32", "s8": "int8", "u8": "uint8", "e4m3": "fp8", "fp8": "fp8", "e5m2": "fp8",
    "half": "fp16", "bfloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "c10::complex<float>": "complex64",
}  # fmt: skip
"""Names of types in kernel names, with the short name of each."""

_CPP = re.compile(
    r"(?<![\w:])(float|double|c10::Half|c10::BFloat16|c10::Float8_e4m3fn|c10::Float8_e5m2"
    r"|c10::complex<float>|__half|__nv_bfloat16|long|bool|unsigned char|signed char|short|int)"
    r"(?=[,>])"
)


def first_type(text: str, *, start: int = 0) -> str:
    """The first number type among the template arguments of a C++ name; empty if there is none."""
    match = _CPP.search(text, text.find("<", start) + 1)
    return TYPES[match[1]] if match else ""


def joined(*words: str) -> str:
    """The words that are not empty, joined by spaces."""
    return " ".join(word for word in words if word)

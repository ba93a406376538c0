"""Opcodes of PTX and how often each occurs, as others read them."""

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest


def opcodes_line_by_line(text: str) -> Counter[str]:
    """By a few expressions, which also take operands on lines of their own for opcodes."""
    text = _bare(text)
    text = re.sub(r"\.(?:loc|file|version|target|address_size) [^\n]*", "", text.replace("\t", " "))
    body = re.sub(r"[\w$]+ ?:(?!:)", "", text)
    return Counter(
        re.findall(r"(?:^|[;{}])\s*(?:@!?[%\w]+\s+)?([a-z][\w.:]*)(?=[\s;])", body, re.MULTILINE)
    )


def _bare(text: str) -> str:
    """Without comments and debug sections, which are most of a text."""
    return re.sub(r"//[^\n]*|\.section[^{]*\{[^}]*\}", "", text)


def need_pyptx() -> None:
    if not importlib.util.find_spec("pyptx"):
        pytest.skip("no pyptx: pip install pyptx")


def opcodes_of_pyptx(text: str) -> Counter[str]:
    """By the package pyptx, which has a parser of its own."""
    from pyptx.parser import parse

    # It loses instructions with a number such as 0x7773U, and stops at a pointer of no space.
    text = re.sub(r"\b(0x[0-9a-fA-F]+)U\b", r"\1", _bare(text))
    directives = parse(text.replace(".ptr .align", ".ptr .global .align")).directives
    return Counter(op for each in directives for op in _instructions(getattr(each, "body", ())))


def _instructions(statements: Any) -> Iterator[str]:
    from pyptx.ir.nodes import Block, Instruction

    for statement in statements:
        if isinstance(statement, Block):
            yield from _instructions(statement.body)
        # pyptx takes .loc for an instruction.
        elif isinstance(statement, Instruction) and statement.opcode != ".loc":
            yield statement.opcode + "".join(statement.modifiers)

"""Kernels of Triton's put into one module: nvdisasm takes half a second, whatever it reads."""

import re
from collections.abc import Mapping
from functools import cached_property

from traceview.kernels.ptx import disassembly
from traceview.kernels.ptx.model import Function, Listing
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.toolchain import listings
from traceview.kernels.toolchain.listings import assemble

_HEAD = re.compile(r"(?s).*?\.address_size 64\n")
_SHARED = ".extern .shared .align 16 .b8 global_smem[];\n"
_KERNEL = re.compile(r"(?ms)^\t// \.globl\t(\w+).*?-- End function\n}\n")
_CONSTANT = re.compile(r"(?m)^\.global .*\n")
_LOCATION = re.compile(r"(?m)(^\t\.loc\t|\binlined_at )(\d+)")
_NAME = re.compile(r"\$L__info_string\d+")
_FILE = re.compile(r"(?m)^\t\.file\t(\d+) (.*)\n")


class OneModule:
    """The text and the code of each kernel, in PTX and in SASS, by the name given to it.

    `text` and `cubin` are those of the whole.
    """

    def __init__(self, made: Mapping[str, str]) -> None:
        """Assemble modules of one kernel each as one."""
        head = _HEAD.match(next(iter(made.values())))
        assert head
        paths = sorted({path for text in made.values() for _, path in _FILE.findall(text)})
        numbers = {path: number for number, path in enumerate(paths, 1)}
        files = "".join(f"\t.file\t{number} {path}\n" for path, number in numbers.items())
        self._ptx_texts = {name: _kernel(text, name, numbers) for name, text in made.items()}
        constants = sorted({each for text in made.values() for each in _CONSTANT.findall(text)})
        kernels = "".join(self._ptx_texts.values())
        names = _inlined_names(kernels)
        self.text = "".join([head[0], _SHARED, *constants, kernels, files, names])
        self.cubin = assemble(self.text).cubin

    def ptx(self, name: str) -> tuple[str, Function]:
        return self._ptx_texts[name], _function(self._ptx, name)

    def sass(self, name: str) -> tuple[str, Function]:
        return self._sass_texts[name], _function(self._sass, name)

    @cached_property
    def _ptx(self) -> Listing:
        return parse_ptx(self.text)

    @cached_property
    def _sass(self) -> Listing:
        listing = disassembly.parse(listings.text_of(self.cubin))
        return disassembly.with_sources_of(listing, self._ptx)

    @cached_property
    def _sass_texts(self) -> dict[str, str]:
        listing = listings.text_of(self.cubin)
        _, *parts = re.split(r"\.section\s+\.text\.(\w+)", listing)
        return dict(zip(parts[::2], parts[1::2], strict=True))


def _kernel(text: str, name: str, numbers: Mapping[str, int]) -> str:
    """The one kernel of a module, with its name and with these numbers of files."""
    (kernel,) = _KERNEL.finditer(_CONSTANT.sub("", text))
    given = {number: numbers[path] for number, path in _FILE.findall(text)}
    named = re.sub(rf"\b{kernel[1]}(?=\b|_param_)", name, kernel[0])
    return _LOCATION.sub(lambda match: match[1] + str(given[match[2]]), named)


def _inlined_names(text: str) -> str:
    """A section with the labels of names of inlined functions, which Triton 3.9 has in lines."""
    labels = "".join(f"{each}:\n.b8 0\n" for each in sorted(set(_NAME.findall(text))))
    return f"\t.section\t.debug_str\n\t{{\n{labels}\t}}\n" if labels else ""


def _function(listing: Listing, name: str) -> Function:
    (function,) = (each for each in listing.functions if each.name == name)
    return function

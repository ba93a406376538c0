"""Kernels of widely used libraries, forward and backward: all of their PTX is understood."""

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tests.inspect.rules.vector_width.one_module import OneModule
from tests.places import TRITON_KERNELS
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.python_targets import compile_python
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.ptx.model import Compiled

LIBRARIES = {"liger_ops": ("liger_kernel", 15), "fla_ops": ("fla", 15)}


@pytest.mark.programs
@pytest.mark.parametrize("script", LIBRARIES)
def test_all_kernels_of_a_library_are_understood(script):
    package, at_least = LIBRARIES[script]
    for needed in ("triton", "torch", package):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"runs kernels of {package}, and {needed} is not installed")
    notes = []
    compiled = compile_python(
        str(TRITON_KERNELS / f"{script}.py"), CompileOptions(first_config=True), note=notes.append
    )
    assert all(each.cubin for each in compiled)
    reports = [inspect(each) for each in in_one_module(compiled)]
    assert notes[-1].endswith("compiled as launched")
    assert not [note for note in notes if "raised" in note]
    assert len({each.name for each in compiled}) >= at_least
    assert [r.name for r in reports if not r.ptx or not r.sass or not r.accesses] == []
    assert any(report.findings for report in reports)
    for report in reports:
        assert all(a.width_bits for a in report.accesses if a.kind in ("load", "store"))
        assert f"{package}/" in (report.compiled.source_file or "")


def in_one_module(compiled: Sequence[Compiled]) -> Iterator[Compiled]:
    """The same kernels in a module that is disassembled once, each under a name of its own."""
    named = {f"{each.name}_{number}": each for number, each in enumerate(compiled)}
    module = OneModule({name: each.ptx for name, each in named.items()})
    for name, each in named.items():
        yield replace(each, name=name, ptx=module.text, cubin=module.cubin)

"""The plain name of a function in what its linker calls it."""

import pytest

from tests.ptx.compiled_kernels import HEADER
from traceview.headless.compile_options import CompileOptions
from traceview.inspect.targets.target import kernels_of
from traceview.ptx.demangle import plain_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z5scaleIfLi1EEvPKT_PS0_fi", "scale"),
        ("_ZN2my5outer5scaleIfEEvPT_", "scale"),
        ("_ZN12_GLOBAL__N_15scaleEPf", "scale"),
        ("_ZL5plainPKfPfi", "plain"),
        ("gelu_kernel", "gelu_kernel"),
        ("_Z", "_Z"),
        ("_Z99999x", "_Z99999x"),
        ("_Z0", "_Z0"),
        ("", ""),
    ],
)
def test_the_plain_name(symbol, name):
    assert plain_name(symbol) == name


def test_kernels_are_chosen_by_it(tmp_path):
    names = ("_Z5scaleIfEvPT_", "_Z5scaleIdEvPT_", "_Z5plainPf")
    entries = [f".visible .entry {name}(.param .u64 p) {{ ret; }}" for name in names]
    file = tmp_path / "k.ptx"
    file.write_text(HEADER + "\n".join(entries))
    for wanted, found in (("scale", 2), ("plain", 1), (names[0], 1)):
        assert len(kernels_of(str(file), CompileOptions(kernel=wanted))) == found

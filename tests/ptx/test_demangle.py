"""The plain name of a function in what its linker calls it."""

import pytest

from tests.ptx.compiled_kernels import HEADER
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.targets import kernels_of
from traceview.kernels.ptx.producers import plain_name, short_name, template_of


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


@pytest.mark.parametrize(
    ("demangled", "short"),
    [
        ("void ops::scale<__half, 8>(__half const*, int)", "ops::scale<__half, 8>"),
        ("void (anonymous namespace)::k(float*)", "(anonymous namespace)::k"),
        ("unsigned long f<(int)3, g(int)>(void (*)(int))", "f<(int)3, g(int)>"),
        (
            "void run<int>(int)::{lambda(int)#1}::operator()(int) const",
            "{lambda(int)#1}::operator()",
        ),
        ("__main__::gelu[abi:v1][abi:cw51_3d](Array<float, 1, C>, int)", "__main__::gelu"),
        ("gelu_kernel", "gelu_kernel"),
        ("k", "k"),
        (")", ")"),
        ("(", "("),
        ("", ""),
    ],
)
def test_the_short_name(demangled, short):
    assert short_name(demangled).endswith(short)
    assert "(int) const" not in short_name(demangled)


def test_kernels_are_chosen_by_it(tmp_path):
    names = ("_Z5scaleIfEvPT_", "_Z5scaleIdEvPT_", "_Z5plainPf")
    entries = [f".visible .entry {name}(.param .u64 p) {{ ret; }}" for name in names]
    file = tmp_path / "k.ptx"
    file.write_text(HEADER + "\n".join(entries))
    wanted_and_found = {"scale": 2, "plain": 1, names[0]: 1, "sca*": 2, "_Z5*": 3}
    for wanted, found in wanted_and_found.items():
        assert len(kernels_of(str(file), CompileOptions(kernel=wanted))) == found


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("scale<float>", "scale"),
        ("ops::scale<__half, 8>", "ops::scale"),
        ("ops<int>::scale<pair<float, 2>>", "ops<int>::scale"),
        ("ops<int>::scale", "ops<int>::scale"),
        ("<lambda>", "<lambda>"),
    ],
)
def test_the_name_that_instances_of_a_template_share(name, template):
    assert template_of(name) == template


@pytest.mark.parametrize("wanted", ["tile<16, true>", "tile<16,true>", "tile<16u, true>"])
def test_kernels_are_chosen_by_a_template_argument_as_source_has_it(wanted, tmp_path):
    file = tmp_path / "k.ptx"
    symbols = ("_Z4tileILj16ELb1EEvPf", "_Z4tileILj160ELb1EEvPf", "_Z4tileILi16ELb0EEvPf")
    entries = [f".visible .entry {name}(.param .u64 p) {{ ret; }}" for name in symbols]
    file.write_text(HEADER + "\n".join(entries))
    (found,) = kernels_of(str(file), CompileOptions(kernel=wanted))
    assert found.name == symbols[0]

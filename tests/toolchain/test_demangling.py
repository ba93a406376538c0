"""C++ names of symbols, by each way that this machine has; names that nobody understands."""

import shutil
import subprocess
import sys

import pytest

from traceview.kernels.toolchain import tools
from traceview.kernels.toolchain.tools import demangled

SYMBOLS = {
    "_Z5scaleIfLi1EEvPKT_PS0_fi": "void scale<float, 1>(float const*, float*, float, int)",
    "_ZN3ops5scaleI6__halfLi8EEEvPKT_i": "void ops::scale<__half, 8>(__half const*, int)",
    "_ZN12_GLOBAL__N_15scaleEPf": "(anonymous namespace)::scale(float*)",
    "_ZN8__main__4geluB2v1E5ArrayIfLi1E1CEi": "__main__::gelu[abi:v1](Array<float, 1, C>, int)",
}
HOSTILE = ["_Z", "_Z99999x", "_ZN" * 900, "_Z1k" + "S_" * 300, "_Z; rm -rf x", "_Z1k\n_Z1q", "-h"]


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    monkeypatch.setattr(tools, "_known", {})


def ways():
    found = [tool for tool in tools._TOOLS if shutil.which(tool)]
    return [*found, "library"]


@pytest.mark.parametrize("way", ways())
def test_each_way_gives_the_name(way, monkeypatch):
    if way == "library":
        command = [sys.executable, "-I", "-c", tools._BY_LIBRARY]
        if subprocess.run([*command, "_Z1kv"], capture_output=True).stdout != b"k()\n":
            pytest.skip("no C++ library here")
    else:
        command = [shutil.which(way)]
    monkeypatch.setattr(tools, "_commands", lambda: [command])
    assert demangled([*SYMBOLS, "gelu_kernel", *HOSTILE]) == {
        **SYMBOLS,
        "gelu_kernel": "gelu_kernel",
        **{name: name for name in HOSTILE},
    }


def test_many_names_are_those_of_cxxfilt():
    tool = shutil.which("c++filt")
    if not tool:
        pytest.skip("no c++filt here")
    symbols = [f"_ZN3ops{len(name := f'k{n}')}{name}IfLi{n}EEEvPT_" for n in range(150)]
    lines = subprocess.run(
        [tool], input="\n".join(symbols), capture_output=True, text=True
    ).stdout.splitlines()
    assert list(demangled(symbols).values()) == lines
    assert lines[7] == "void ops::k7<float, 7>(float*)"


def test_without_any_way_symbols_stay(monkeypatch):
    monkeypatch.setattr(tools, "_commands", lambda: [["/no/such/tool"]])
    assert demangled(SYMBOLS) == {symbol: symbol for symbol in SYMBOLS}

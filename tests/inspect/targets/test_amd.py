"""Code for AMD GPUs is refused in one line, whatever its form."""

import json
import struct

import pytest

from traceview.base.errors import InputError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.targets import kernels_of

# The head of an ELF file with e_machine EM_AMDGPU.
OBJECT = b"\x7fELF\x02\x01\x01\x40" + bytes(8) + struct.pack("<HHI", 3, 224, 1) + bytes(40)
ASSEMBLY = b'\t.text\n\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n'
BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__" + bytes(8) + b"hipv4-amdgcn-amd-amdhsa--gfx90a"


@pytest.mark.parametrize(
    ("name", "data", "which"),
    [
        ("k.hsaco", OBJECT, ""),
        ("k.cubin", OBJECT, ""),
        ("k.co", OBJECT, ""),
        ("k.o", OBJECT, ""),
        ("k.amdgcn", ASSEMBLY, " (gfx942)"),
        ("k.ptx", ASSEMBLY, " (gfx942)"),
        ("k.fatbin", BUNDLE, " (gfx90a)"),
    ],
)
def test_a_file(tmp_path, name, data, which):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as raised:
        kernels_of(str(path))
    expected = f"{path} is code for AMD GPUs{which}; traceview ptx reads code for NVIDIA GPUs"
    assert str(raised.value) == expected


@pytest.mark.parametrize("suffix", ["hsaco", "amdgcn"])
def test_a_cache_of_triton(tmp_path, suffix):
    folder = tmp_path / "hash"
    folder.mkdir()
    described = {"name": "k", "target": {"backend": "hip", "arch": "gfx942"}, "num_warps": 4}
    (folder / "k.json").write_text(json.dumps(described))
    (folder / f"k.{suffix}").write_bytes(OBJECT)
    with pytest.raises(InputError, match=f"holds kernels for AMD GPUs .k.{suffix}"):
        kernels_of(str(tmp_path))


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "hip:gfx1100", "hip"])
def test_an_architecture(arch):
    with pytest.raises(InputError, match=f"{arch} is an AMD GPU; traceview ptx reads code for"):
        kernels_of("kernel.py", CompileOptions(arch=arch))

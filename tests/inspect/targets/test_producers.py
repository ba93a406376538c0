"""PTX and a cubin of other compilers: our own kernels of tests/data/producers, and what they are.

What is expected stands beside what each compiler's source says.
"""

from pathlib import Path

import pytest

import traceview
from tests.inspect.rules.written_ptx import need

pytestmark = pytest.mark.programs

FOLDER = Path(__file__).parents[2] / "data" / "producers"
# Kernel, producer, and (kind, source line, bits) of what it moves in global memory; None is a line
# that the code does not tell.
EXPECTED = {
    "cutlass_dsl-4.8.1-sm90.ptx": {
        "scale_vectors": (
            "CUTLASS DSL (NVVM of CUDA 13.4)",
            {("load", 17, 128), ("store", 17, 128)},
        ),
    },
    "warp-1.19.0-sm90.ptx": {
        "gelu_kernel.forward": (
            "Warp (NVVM of CUDA 13.4)",
            {("load", 21, 32), ("store", 21, 32)},
        ),
        # A wp.vec4 is aligned to its elements, not to 16 bytes.
        "scale_vec4.forward": (
            "Warp (NVVM of CUDA 13.4)",
            {("load", 27, 32), ("store", 27, 32)},
        ),
    },
    "numba_cuda-0.30.4-twice-sm90.ptx": {
        "__main__::twice": (
            "numba-cuda (NVVM of CUDA 13.5)",
            {("load", 11, 32), ("store", 11, 32)},
        ),
    },
    "tilelang-0.1.15-sm80.ptx": {
        "scale_tile_kernel": (
            "TileLang (NVVM of CUDA 13.5)",
            {("async-copy", line, 128) for line in (21, 23, 27)}
            | {("store", line, 128) for line in (39, 51, 62)},
        ),
    },
    "jax-0.10.2-pallas-sm90.ptx": {
        "gelu_kernel": ("LLVM", {("load", None, 128), ("store", None, 128)}),
    },
}


def reported(file, **options):
    report = traceview.inspect_ptx(FOLDER / file, **options)
    return {kernel.short_name: kernel for kernel in report.kernels}


def accesses(kernel, level):
    return [a for a in kernel.accesses if a.level == level and a.space == "global"]


def moved(kernel, level="ptx"):
    return {
        (a.kind, a.source.line if a.source else None, a.width_bits) for a in accesses(kernel, level)
    }


@pytest.mark.parametrize("file", EXPECTED)
def test_names_lines_and_widths(file):
    found = {
        name: (kernel.producer.described, moved(kernel)) for name, kernel in reported(file).items()
    }
    if any(name.startswith("_Z") for name in found):
        pytest.skip("nothing here demangles C++ names")
    assert found == EXPECTED[file]


@pytest.mark.parametrize("file", EXPECTED)
def test_they_are_assembled_also_by_an_older_ptxas(file):
    need("ptxas")
    for kernel in reported(file).values():
        assert kernel.registers, kernel.notes
        assert not any(note.startswith("not assembled") for note in kernel.notes)


def test_a_cubin_of_cutile():
    need("nvdisasm")
    (kernel,) = reported("cutile-1.7.0-sm90.cubin").values()
    assert (kernel.short_name, kernel.producer.described) == ("scale_tile", "cuTile")
    assert moved(kernel, "sass") == {("load", 17, 128), ("store", 18, 128)}


def test_a_stride_of_unknown_value_gives_no_sectors():
    """`every_other` loads x[i * step] and stores y[i]."""
    (kernel,) = reported("numba_cuda-0.30.4-every_other-sm90.ptx").values()
    costs = {access.kind: access.cost for access in accesses(kernel, "ptx")}
    assert costs["load"] is None
    assert (costs["store"].sectors, costs["store"].ideal_sectors) == (4, 4)


def test_strides_in_a_structure_give_no_sectors():
    """Warp passes an array as a structure with its strides, which are known at run time only."""
    for kernel in reported("warp-1.19.0-sm90.ptx").values():
        assert all(access.cost is None for access in accesses(kernel, "ptx"))


def test_contiguous_vectors_cost_what_they_hold():
    (kernel,) = reported("cutlass_dsl-4.8.1-sm90.ptx").values()
    assert {a.cost.sectors for a in accesses(kernel, "ptx")} == {16}


def test_scalars_of_a_vector_type_that_is_not_aligned():
    kernel = reported("warp-1.19.0-sm90.ptx")["scale_vec4.forward"]
    (finding,) = [each for each in kernel.findings if "128" in each.message]
    assert "nothing shows that vectors of 16 bytes would fit" in finding.message
    assert "float4" in finding.action


def test_two_paths_to_one_access_count_once():
    """Warp writes the body of its grid-stride loop twice: a thread takes one of them."""
    kernels = reported("warp-1.19.0-sm90.ptx")
    (finding,) = [f for f in kernels["gelu_kernel.forward"].findings if "128" in f.message]
    # The strides are in a structure, and the index is a remainder.
    assert finding.action.startswith("Leave the width unless")
    elements = {name: kernel.elements_per_thread for name, kernel in kernels.items()}
    assert elements == {"gelu_kernel.forward": 1, "scale_vec4.forward": 4}


def test_code_without_a_line_table_says_how_to_get_one(tmp_path):
    text = (FOLDER / "warp-1.19.0-sm90.ptx").read_text()
    bare = "\n".join(line for line in text.splitlines() if not line.strip().startswith(".loc"))
    (tmp_path / "bare.ptx").write_text(bare)
    kernel, _ = traceview.inspect_ptx(tmp_path / "bare.ptx").kernels
    note = "no source lines: the code has no line table; set wp.config.lineinfo = True"
    assert note in kernel.notes
    assert kernel.findings[0].message.startswith("Global loads and stores move 32 bits")
    (pallas,) = reported("jax-0.10.2-pallas-sm90.ptx").values()
    assert "no source lines: the code has no line table" in pallas.notes


@pytest.mark.parametrize(
    ("file", "chosen", "count"),
    [
        ("warp-1.19.0-sm90.ptx", "gelu_kernel.forward", 1),
        ("warp-1.19.0-sm90.ptx", "*.forward", 2),
        ("cutlass_dsl-4.8.1-sm90.ptx", "scale_vectors", 1),
        ("cutile-1.7.0-sm90.cubin", "scale_tile", 1),
    ],
)
def test_kernels_are_chosen_by_their_own_names(file, chosen, count):
    assert len(traceview.inspect_ptx(FOLDER / file, kernel=chosen).kernels) == count


def test_memory_that_the_launch_allocates_is_not_counted_as_none():
    need("ptxas")
    (kernel,) = reported("tilelang-0.1.15-sm80.ptx").values()
    assert "dynamic shared memory is not known; the occupancy assumes none" in kernel.notes

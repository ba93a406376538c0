"""Bank conflicts in CUDA C++: the array, its stride, and the declaration that removes them."""

import pytest

import traceview
from tests.inspect.rules.written_ptx import need, need_compiler

TEXT = """{constants}
__global__ void spread(const {type}* x, {type}* y, int n) {{
  {declared}
  for (int k = 0; k < n; k++) {{
    {name}[threadIdx.y][threadIdx.x] = x[k * 1024 + threadIdx.y * 32 + threadIdx.x];
    even[threadIdx.y][threadIdx.x] = x[k + threadIdx.x];
    __syncthreads();
    y[k * 1024 + threadIdx.x] = {read};
    __syncthreads();
  }}
}}
"""
BOTH = "{} + even[threadIdx.y][threadIdx.x]"
TILE = BOTH.format("tile[threadIdx.x][threadIdx.y]")
PADDED = {
    "numbers": ("", "float", "float tile[32][32], even[32][32];", TILE, 32, "tile[32][33]"),
    "after another": ("", "float", "float even[32][32], tile[32][32];", TILE, 32, "tile[32][33]"),
    "wide rows": ("", "float", "float tile[32][64], even[32][32];", TILE, 64, "tile[32][65]"),
    "a macro": (
        "#define ROW 32",
        "int",
        "int tile[ROW][ROW], even[ROW][ROW];",
        TILE,
        32,
        "tile[ROW][ROW + 1]",
    ),
    "a constant": (
        "constexpr int kTile = 32;",
        "float",
        "float tile[32][kTile], even[32][32];",
        TILE,
        32,
        "tile[32][kTile + 1]",
    ),
    "8 bytes": ("", "double", "double tile[32][32], even[32][32];", TILE, 64, "tile[32][33]"),
    "16 bytes": ("", "double2", "double2 tile[32][16], even[16][32];", None, 64, "tile[32][17]"),
}
LEFT = {
    # Within a row no padding of rows helps.
    "in a row": (
        "",
        "float",
        "float tile[32][256], even[32][32];",
        BOTH.format("tile[threadIdx.y][threadIdx.x * 8]"),
        8,
    ),
    "no room": ("", "float", "float tile[32][352], even[32][32];", TILE, 352),
}


def conflicts(tmp_path, constants, kind, declared, read, name="tile"):
    need("ptxas", "nvdisasm")
    need_compiler()
    shared = f"__shared__ {declared}"
    text = TEXT.format(constants=constants, type=kind, declared=shared, name=name, read=read)
    (tmp_path / "k.cu").write_text(text)
    (kernel,) = traceview.inspect_ptx(tmp_path / "k.cu").kernels
    return [f for f in kernel.findings if "ways" in f.evidence.values]


@pytest.mark.parametrize(
    ("constants", "kind", "declared", "read", "words", "padded"), PADDED.values(), ids=PADDED
)
@pytest.mark.parametrize("name", ["tile", "a"])
def test_the_padded_declaration_is_named(
    tmp_path, constants, kind, declared, read, words, padded, name
):
    # Two arrays in one line: only one of them has conflicts.
    read = read or "tile[threadIdx.x][threadIdx.y]"
    declared, read, padded = (t.replace("tile", name) for t in (declared, read, padded))
    (found,) = conflicts(tmp_path, constants, kind, declared, read, name)
    assert f"shared-memory accesses of {name} at k.cu:" in found.message
    assert f"threads are {words} words of 4 bytes apart" in found.message
    assert found.action.startswith(f"Declare it __shared__ {kind} {padded},")
    # What it says is tried.
    row = padded.rpartition("[")[0] + "["
    at = declared.index(row)
    mended = declared[:at] + padded + declared[declared.index("]", at + len(row)) + 1 :]
    assert not conflicts(tmp_path, constants, kind, mended, read, name)


@pytest.mark.parametrize(
    ("constants", "kind", "declared", "read", "words"), LEFT.values(), ids=LEFT
)
def test_where_padding_does_not_help_none_is_declared(
    tmp_path, constants, kind, declared, read, words
):
    (found,) = conflicts(tmp_path, constants, kind, declared, read)
    assert f"threads are {words} words of 4 bytes apart" in found.message
    assert "Declare it" not in found.action

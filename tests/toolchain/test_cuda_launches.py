"""The block of a launch in the source of CUDA C++, as a compiler would fold it."""

import pytest

from traceview.kernels.toolchain.cuda_launches import launch_of

KERNEL = "__global__ void step(float *x) { x[threadIdx.x] = 0; }\n"
# What is declared before the launch, its second argument, and the sides of the block.
LAUNCHES = [
    ("", "256", (256, 1, 1)),
    ("", "1024u", (1024, 1, 1)),
    ("", "2 * 64 + 32", (160, 1, 1)),
    ("", "1 << 7", (128, 1, 1)),
    ("#define THREADS 512", "THREADS", (512, 1, 1)),
    ("#define T (16)\n#define THREADS (T * T)", "THREADS", (256, 1, 1)),
    ("const int threads = 192;", "threads", (192, 1, 1)),
    ("constexpr unsigned threads{96};", "threads", (96, 1, 1)),
    ("int threads(64);", "threads", (64, 1, 1)),
    ("enum { THREADS = 128 };", "THREADS", (128, 1, 1)),
    ("#define B 16", "dim3(B, B)", (16, 16, 1)),
    ("", "dim3(8, 8, 4)", (8, 8, 4)),
    ("dim3 grid(4), block(32, 8);", "block", (32, 8, 1)),
    ("dim3 block((16 * 2), 8), grid(4);", "block", (32, 8, 1)),
    ("dim3 block = dim3(1, 1);", "block", (1, 1, 1)),
    ("dim3 block{64};", "block", (64, 1, 1)),
    ("const int w = (int)32; dim3 block(w, static_cast<int>(4));", "block", (32, 4, 1)),
    ("int threads = 256; // int threads = 128;", "threads", (256, 1, 1)),
    # What only the run knows, or changes.
    ("int threads = atoi(v[1]);", "threads", None),
    ("int threads = 256; threads = 128;", "threads", None),
    ("int threads = 256; threads *= 2;", "threads", None),
    ("dim3 block(32, 8); block.y = n;", "block", None),
    ("dim3 block(n);", "block", None),
    ("", "n", None),
    ("", "2048", None),
    ("", "0", None),
    ("#define A B\n#define B A", "A", None),
]
CALLS = [
    "step<<<grid, {}>>>(x);",
    "step <<< n / 2, {}, 0, stream >>> (x);",
    "step<float><<<n,{}>>>(x);",
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("declared", "block", "expected"), LAUNCHES)
def test_the_block_of_a_launch(tmp_path, call, declared, block, expected):
    where = f"{declared}\n" if declared.startswith(("#", "enum")) else ""
    body = f"  {'' if where else declared}\n  {call.format(block)}\n"
    path = tmp_path / "step.cu"
    path.write_text(f"{where}{KERNEL}void run(int n, char **v, float *x) {{\n{body}}}\n")
    found = launch_of(path, "step")
    assert (found and found.block) == expected
    if found:
        assert "<<<" in path.read_text().splitlines()[found.source.line - 1]


@pytest.mark.parametrize("name", ["main.cu", "src/launch.cuh", "host.cpp"])
def test_a_launch_in_another_file_of_the_project(tmp_path, name):
    (tmp_path / "CMakeLists.txt").write_text("")
    (tmp_path / "step.cu").write_text(KERNEL)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("void run() { step<<<4, dim3(16, 8)>>>(x); other<<<4, 7>>>(); }")
    found = launch_of(tmp_path / "step.cu", "step")
    assert found
    assert found.block == (16, 8, 1)
    assert found.source.file.endswith(name)


@pytest.mark.parametrize("given", ["#define THREADS 96", "constexpr int THREADS = 3 * 32;"])
def test_a_name_that_a_header_gives(tmp_path, given):
    (tmp_path / "sizes.h").write_text(f"// THREADS\n{given}\n")
    launch = "void run() { dim3 block(THREADS, 1, 1); step<<<4, block>>>(x); }"
    (tmp_path / "step.cu").write_text(f'#include "sizes.h"\n{KERNEL}{launch}\n')
    found = launch_of(tmp_path / "step.cu", "step")
    assert found
    assert found.block == (96, 1, 1)


@pytest.mark.parametrize(("others", "expected"), [(["64", "64"], (64, 1, 1)), (["64", "32"], None)])
def test_launches_that_differ_leave_it_open(tmp_path, others, expected):
    calls = "".join(f"step<<<n, {each}>>>(x);" for each in others)
    (tmp_path / "step.cu").write_text(f"{KERNEL}void run() {{ {calls} }}")
    found = launch_of(tmp_path / "step.cu", "step")
    assert (found and found.block) == expected


@pytest.mark.parametrize(
    "text", ["", KERNEL, "void my_step() { my_step<<<1, 32>>>(); }", "step<<<1"]
)
def test_no_launch(tmp_path, text):
    (tmp_path / "step.cu").write_text(text)
    assert launch_of(tmp_path / "step.cu", "step") is None

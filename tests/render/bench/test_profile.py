"""Profiles as text and flame graph, from hand-made trees."""

import pytest

from traceview.render.bench_json import (
    kernel_table,
    operator_table,
    render_flame,
    render_profile,
)
from traceview.trials.bench import Profile
from traceview.trials.bench.profiling import Frame, KernelOfOperator, OperatorTime

NAME = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluFunctor<float>>(int)"


@pytest.fixture
def on_gpu():
    tree = Frame("all", "root")
    outer = tree.child("aten::gelu", "operator")
    outer.cpu_ns, outer.calls = 9_000, 3
    for name, took_ns in ((NAME, 60_000), ("memset", 20_000)):
        kernel = outer.child(name, "kernel")
        kernel.gpu_ns, kernel.calls = took_ns, 3
    return Profile(
        (OperatorTime("aten::gelu", 3, 9_000, 80_000), OperatorTime("aten::empty", 3, 2_000, 0)),
        (
            KernelOfOperator("aten::gelu", ("aten::gelu",), NAME, 3, 60_000),
            KernelOfOperator("aten::gelu", ("aten::gelu",), "memset", 3, 20_000),
        ),
        tree,
        True,
        3,
    )


def test_kernels_are_listed_with_the_operator_that_launched_them(on_gpu):
    assert [(row["mean_ns"], row["share_pct"]) for row in kernel_table(on_gpu).rows()] == [
        (20_000, 75.0),
        (pytest.approx(20_000 / 3), 25.0),
    ]
    assert [row["share_pct"] for row in operator_table(on_gpu).rows()] == [100.0, 0.0]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_table_fits_its_width(on_gpu, width):
    shown = render_profile(on_gpu, "gelu torch", width=width)
    assert max(map(len, shown.splitlines())) <= width
    assert "Operators  gelu torch: 3 calls profiled" in shown
    assert "Kernels by operator" in shown
    assert "60.0 µs" in shown


def test_more_than_fits_a_screen_is_counted(on_gpu):
    many = tuple(OperatorTime(f"op{i}", 1, i, 0) for i in range(30))
    shown = render_profile(Profile(many, (), on_gpu.tree, False, 1), "x")
    assert "and 10 more in the JSON" in shown
    assert "Kernels" not in shown


def test_a_profile_without_operators():
    nothing = Profile((), (), Frame("all", "root"), False, 3)
    assert "no torch operator ran" in render_profile(nothing, "x")
    assert "no torch operator ran" in render_flame(nothing, "x")


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_a_function_that_does_not_use_the_gpu_is_shown_by_cpu_time(monkeypatch):
    """Even on a machine with a GPU, where a graph of GPU time would be empty."""
    torch = pytest.importorskip("torch")
    from traceview.trials.bench import profile

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    x = torch.ones(64)
    found = profile(lambda: x + x)
    assert not found.on_gpu
    assert "CPU time by operator" in render_flame(found, "x")

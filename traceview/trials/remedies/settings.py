"""Remedies that change a setting of torch."""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies import base

# torch.set_float32_matmul_precision('high'): fp32 products on the tensor cores, in TF32.


def _matmul_precision(torch: Any, run: base.RemedyRun) -> None:
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 8:
        run.reject("this GPU has no TF32")

    base.switch_setting(
        run,
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        lambda now: "high" if now == "highest" else now,
    )


MATMUL_PRECISION = base.ProgramRemedy(
    name="matmul_precision",
    does="Allow TF32 in fp32 products",
    answers=r"set_float32_matmul_precision",
    effect="fp32 GEMMs become faster",
    install=_matmul_precision,
    line='torch.set_float32_matmul_precision("high")',
    may_change="fp32 products, by 2⁻¹⁰",
    bound=base.TF32,
    is_switchable=True,
)

# torch.backends.cudnn.benchmark: cuDNN tries its algorithms once per size.


def _cudnn_benchmark(torch: Any, run: base.RemedyRun) -> None:
    base.need_gpu(torch, run)
    cudnn = torch.backends.cudnn
    base.switch_setting(
        run,
        lambda: cudnn.benchmark,
        lambda value: setattr(cudnn, "benchmark", value),
        lambda _: True,
    )


CUDNN_BENCHMARK = base.ProgramRemedy(
    name="cudnn_benchmark",
    does="Let cuDNN try its algorithms",
    answers="",
    effect="convolutions become faster, first calls of a size slower",
    install=_cudnn_benchmark,
    line="torch.backends.cudnn.benchmark = True",
    may_change="algorithms of convolutions",
    bound=base.TF32,
    is_switchable=True,
)

# Without torch.cuda.empty_cache(): the allocator keeps its memory.


def _empty_cache(torch: Any, run: base.RemedyRun) -> None:
    base.need_gpu(torch, run)

    def make(original: Any) -> Any:
        def empty_cache() -> None:
            if run.on:
                run.applied("empty_cache")
            else:
                original()

        return empty_cache

    base.replace_function(torch.cuda, "empty_cache", make)


EMPTY_CACHE = base.ProgramRemedy(
    name="empty_cache",
    does="Remove torch.cuda.empty_cache()",
    answers=r"Remove torch\.cuda\.empty_cache",
    effect="no allocations, releases or waits in them",
    install=_empty_cache,
    how="remove the call, or call it once before the loop",
    is_switchable=True,
)

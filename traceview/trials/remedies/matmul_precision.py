"""torch.set_float32_matmul_precision('high'): fp32 products on the tensor cores, in TF32."""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies.base import TF32, ProgramRemedy, RemedyRun, switch_setting


def _install(torch: Any, run: RemedyRun) -> None:
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 8:
        run.reject("this GPU has no TF32")

    switch_setting(
        run,
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        lambda now: "high" if now == "highest" else now,
    )


REMEDY = ProgramRemedy(
    name="matmul_precision",
    does="Allow TF32 in fp32 products",
    answers=r"set_float32_matmul_precision",
    effect="fp32 GEMMs become faster",
    install=_install,
    line='torch.set_float32_matmul_precision("high")',
    may_change="fp32 products, by 2⁻¹⁰",
    bound=TF32,
    is_switchable=True,
)

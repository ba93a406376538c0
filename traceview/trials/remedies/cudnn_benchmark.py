"""torch.backends.cudnn.benchmark: cuDNN tries its algorithms once per size."""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies.base import (
    TF32,
    ProgramRemedy,
    RemedyRun,
    need_gpu,
    switch_setting,
)


def _install(torch: Any, run: RemedyRun) -> None:
    need_gpu(torch, run)
    cudnn = torch.backends.cudnn
    switch_setting(
        run,
        lambda: cudnn.benchmark,
        lambda value: setattr(cudnn, "benchmark", value),
        lambda _: True,
    )


REMEDY = ProgramRemedy(
    name="cudnn_benchmark",
    does="Let cuDNN try its algorithms",
    answers="",
    effect="convolutions become faster, first calls of a size slower",
    install=_install,
    line="torch.backends.cudnn.benchmark = True",
    may_change="algorithms of convolutions",
    bound=TF32,
    is_switchable=True,
)

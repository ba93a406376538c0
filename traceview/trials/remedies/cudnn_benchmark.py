"""torch.backends.cudnn.benchmark: cuDNN tries its algorithms once per size."""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies.base import TF32, ProgramRemedy, RemedyRun, need_gpu


def _install(torch: Any, run: RemedyRun) -> None:
    need_gpu(torch, run)

    def switch(on: bool) -> None:
        if on and not torch.backends.cudnn.benchmark:
            torch.backends.cudnn.benchmark = True
            run.applied()
        elif not on:
            torch.backends.cudnn.benchmark = False

    run.at_switch(switch)


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

"""torch.compile(mode='reduce-overhead'): the compiled parts of the model replay CUDA graphs.

A graph of the region as it is would be wrong wherever its addresses, sizes or Python's decisions
change. torch checks these and falls back, so it is the only sound way without reading the program.
"""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies.base import ProgramRemedy, RemedyRun, need_gpu
from traceview.trials.remedies.compile_model import BOUND, compile_models


def _install(torch: Any, run: RemedyRun) -> None:
    need_gpu(torch, run, "CUDA graphs need a GPU")
    compile_models(torch, run, mode="reduce-overhead")


REMEDY = ProgramRemedy(
    name="cuda_graph",
    does="Replay the model as CUDA graphs",
    answers=r"reduce-overhead|CUDA graph",
    effect="launches of the model become one per graph",
    install=_install,
    how="model = torch.compile(model, mode='reduce-overhead') before the loop",
    may_change="roundings, dropout's numbers",
    bound=BOUND,
    reseeds=True,
    is_switchable=True,
    # Of all launches: those of the optimizer stay.
    bounds=("gpu-idle", "launch-overhead"),
    instead_of=("compile",),
)

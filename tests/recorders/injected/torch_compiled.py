"""What torch.compile, export, fx and pickle make of training programs.

To be run twice, as it is and with ranges added: the output must be the same.
"""

import copy
import inspect
import io
import pickle
import sys
import warnings

import torch
from torch import nn
from torch._dynamo.utils import counters

sys.path.insert(0, __file__.rpartition("/")[0])
from torch_loops import Net

warnings.simplefilter("ignore")
X = torch.ones(4, 8)


class Hooked(Net):
    def __init__(self):
        super().__init__()
        self.h[0].register_forward_hook(lambda module, given, result: result * 2)


def step_of(kind, where, backend):
    """A training step with one part compiled."""
    net = kind()
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    model, update = net, optimizer.step
    if where == "model":
        model = torch.compile(net, backend=backend)
    if where == "in place":
        net.compile(backend=backend)
    if where == "block":
        net.h[1] = torch.compile(net.h[1], backend=backend, fullgraph=True)
    if where == "function":
        model = torch.compile(lambda x: net(x), backend=backend, fullgraph=True)
    if where == "optimizer":
        update = torch.compile(optimizer.step, backend=backend)

    def step(x):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), torch.zeros(len(x), 1))
        loss.backward()
        update()
        return loss

    return torch.compile(step, backend=backend) if where == "step" else step


PARTS = ("model", "in place", "block", "function", "optimizer", "step")
# Modules with hooks, and what autograd traces, go through the same wrappers.
COMPILED = (
    *(("eager", Net, part) for part in PARTS),
    *(("eager", Hooked, part) for part in ("in place", "block", "step")),
    ("aot_eager", Net, "step"),
    ("aot_eager", Hooked, "model"),
)


def compiled():
    for backend, kind, where in COMPILED:
        torch.manual_seed(0)
        step = step_of(kind, where, backend)
        losses = [f"{step(X + number).item():.6f}" for number in range(3)]
        breaks, again = counters["graph_break"].values(), counters["recompiles"].values()
        print(backend, kind.__name__, where, losses, dict(counters["stats"]))
        print("  ", sum(breaks), "graph breaks", sum(again), "recompilations")
        counters.clear()
        torch._dynamo.reset()


def exported():
    torch.manual_seed(0)
    print(torch.export.export(Net(), (X,)).graph_module.code)
    print(torch.fx.symbolic_trace(Net()).code)
    print(torch.jit.trace(Net(), (X,)).code)
    print(torch.jit.script(nn.Sequential(nn.Linear(8, 8))).code)


def copied():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    again = pickle.loads(pickle.dumps(net))
    print(sorted(vars(again)), sorted(vars(net)), [str(p.shape) for p in again.parameters()])
    other = copy.deepcopy(optimizer)
    print(sorted(vars(other)), sorted(vars(optimizer)), other.step is not None)
    file = io.BytesIO()
    torch.save(net, file)
    print(sorted(vars(torch.load(io.BytesIO(file.getvalue()), weights_only=False))))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    scheduler.step()
    for function in (optimizer.step, optimizer.zero_grad, net.__call__, torch.autograd.backward):
        print(function.__name__, function.__qualname__, inspect.signature(function))


if __name__ == "__main__":
    compiled()
    exported()
    copied()

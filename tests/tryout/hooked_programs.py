"""Programs that are run with one remedy, in a process of their own: `test_hooks` asks for them."""

import json
import os
import sys
import tempfile
import warnings

import torch
from torch import nn

from traceview.traces.recorders.injected.traceview_injected.annotations import torch_calls
from traceview.trials.remedies import BY_NAME
from traceview.trials.remedies.models import compile_models
from traceview.trials.tryout.reference import REFERENCE


class Rejected(BaseException):
    """Ends a run in place of the end of its process."""


class FakeRun:
    def __init__(self):
        self.on, self.calls, self.switches = True, [], []

    def applied(self, callee="", keywords=None):
        self.calls.append((callee, dict(keywords or {})))

    def reject(self, reason):
        raise Rejected(reason)

    def at_switch(self, switch):
        self.switches.append(switch)
        switch(True)

    def turn(self):
        self.on = not self.on
        for switch in self.switches:
            switch(self.on)


def main():
    """Run `remedy program prepare`; prints what it returned, its calls and its end."""
    output = os.dup(1)
    os.dup2(2, 1)
    name, program, prepare = sys.argv[1:]
    warnings.simplefilter("ignore")
    run, result, rejected = FakeRun(), None, None
    try:
        if prepare:
            globals()[prepare]()
        torch.manual_seed(0)
        if name:
            (INSTALL.get(program) or REMEDY_OF[name].install)(torch, run)
        result = PROGRAMS[program](run)
    except Rejected as ended:
        rejected = str(ended)
    with os.fdopen(output, "w") as file:
        json.dump((result, run.calls, rejected), file, default=str)


def losses(model, inputs, optimizer=torch.optim.SGD, after=lambda: None):
    """Losses of five steps of training a model, which is made here."""
    torch.manual_seed(1)
    made = model()
    updates = optimizer(made.parameters(), lr=0.1)
    result = []
    for _ in range(5):
        updates.zero_grad(set_to_none=False)
        loss = made(*inputs).float().square().mean()
        loss.backward()
        updates.step()
        after()
        result.append(loss.item())
    return result


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


class Tied(nn.Module):
    """A language model whose output layer has a bias and shares the weight of its embedding."""

    def __init__(self, rows):
        super().__init__()
        self.token, self.out = nn.Embedding(rows, 8), nn.Linear(8, rows)
        self.out.weight = self.token.weight
        nn.init.normal_(self.out.weight)

    def forward(self, tokens):
        return self.out(self.token(tokens)).softmax(-1)[..., :5] * 1_000


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 3, 3))


def vector():
    return torch.linspace(-1, 1, 64).reshape(8, 8)


def images():
    return torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


def checkpointed():
    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = mlp()

        def forward(self, x):
            from torch.utils.checkpoint import checkpoint

            return checkpoint(self.inner, x, use_reentrant=False)

    return Blocks()


def switched(run):
    """Calls of the checkpointed block per step, with the remedy on, off and on."""
    results = []
    for on in (True, False, True):
        run.on = on
        model, x = checkpointed(), vector().requires_grad_()
        calls = []
        model.inner[0].register_forward_hook(lambda *_, calls=calls: calls.append(1))
        model(x).sum().backward()
        results.append(len(calls))
    return results


def turned(run):
    """A program with layouts, states and updates, switched before the second and fourth step."""
    seen = []
    adam = []

    def noted():
        run.turn()

    def optimizer(parameters, lr):
        adam.append(torch.optim.Adam(parameters, lr=lr))
        return adam[0]

    def after():
        noted()
        weight = adam[0].param_groups[0]["params"][0]
        is_nhwc = [
            each.is_contiguous(memory_format=torch.channels_last)
            for each in (weight, weight.grad, adam[0].state[weight]["exp_avg"])
        ]
        group = adam[0].param_groups[0]
        seen.append((run.on, is_nhwc, group["fused"], group["foreach"]))

    return losses(convolutions, [images()], optimizer, after), seen


def turned_settings(run, read):
    """What a setting of the program's own is as a remedy is on, off, on and off."""
    seen = []
    for _ in range(4):
        seen.append(read())
        run.turn()
    return seen


def turned_groups(run, *groups):
    """`foreach` and `fused` of parameter groups, of which the last one is added later."""
    parameters = [{"params": [nn.Parameter(torch.ones(2))], **group} for group in groups]
    adam = torch.optim.Adam(parameters[:-1], foreach=False)
    adam.add_param_group(parameters[-1])
    adam.load_state_dict(adam.state_dict())
    return turned_settings(
        run,
        lambda: [(group["foreach"], group["fused"]) for group in adam.param_groups],
    )


def turned_layouts(run, *nhwc):
    """Whether weights, gradients and states of convolutions are NHWC, on, off, on and off."""
    layers = [nn.Conv2d(3, 3, 3) for _ in nhwc]
    for layer, is_nhwc in zip(layers, nhwc, strict=True):
        form = torch.channels_last if is_nhwc else torch.contiguous_format
        layer.to(memory_format=form)
    model = nn.Sequential(*layers)
    sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step():
        sgd.zero_grad()
        model(images()).sum().backward()
        sgd.step()

    def read():
        kept = [(w, w.grad, sgd.state[w]["momentum_buffer"]) for w in (x.weight for x in layers)]
        forms = [
            [x.is_contiguous(memory_format=torch.channels_last) for x in each] for each in kept
        ]
        step()
        return forms

    step()
    return turned_settings(run, read)


def noisy(_):
    """A model that draws random numbers."""

    class Noisy(nn.Linear):
        def forward(self, x):
            result = super().forward(x)
            return result + torch.randn_like(result)

    return losses(lambda: Noisy(8, 4), [vector()])


def counts(run):
    torch.tensor(1.5)._traceview_read()
    return (torch.tensor([1, 2]) > 1).sum()._traceview_read()


def fourier(_):
    class Transform(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 3, 1)
            # Of complex numbers: of five dimensions, which have no channels_last.
            self.spectrum = nn.Parameter(torch.ones(1, 1, 1, 1, 2))

        def forward(self, x):
            return torch.fft.rfft2(self.first(x)).real

    return losses(Transform, [images()])


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(4))


def with_gpu():
    """A torch that claims a GPU, and notes uploads in place of doing them."""
    torch.cuda.is_available = lambda: True
    torch.Tensor.is_pinned = lambda _: True
    torch.Tensor.to = lambda _self, *args, **named: (args, named)
    torch.cuda.empty_cache = lambda: 1 / 0


def with_benchmark():
    with_gpu()
    torch.backends.cudnn.benchmark = True


def with_high():
    torch.set_float32_matmul_precision("high")


def with_medium():
    torch.set_float32_matmul_precision("medium")


def without_gpu():
    torch.cuda.is_available = lambda: False


def buckets(_):
    with tempfile.NamedTemporaryFile() as store:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store.name}", rank=0, world_size=1
        )
        return nn.parallel.DistributedDataParallel(mlp()).gradient_as_bucket_view


REMEDY_OF = {**BY_NAME, REFERENCE.name: REFERENCE}
GRAPHS = []


def counted_graph(graph, _):
    GRAPHS.append(len(graph.graph.nodes))
    return graph.forward


def compiled_below_hooks(torch, run):
    torch_calls.wrap(torch, name_modules=False, carrier=(lambda text: text, id))
    compile_models(torch, run, backend=counted_graph)


def switched_off(torch, run):
    compiled_below_hooks(torch, run)
    run.on = False


INSTALL = {"compiled": compiled_below_hooks, "compiled_not_now": switched_off}
Loader = torch.utils.data.DataLoader
PROGRAMS = {
    # Trained by a remedy that keeps the results.
    "fused": lambda _: losses(mlp, [vector()], torch.optim.AdamW),
    "foreach": lambda _: losses(mlp, [vector()], torch.optim.Adam),
    "zero_grad": lambda _: losses(mlp, [vector()]),
    "checkpoints": lambda _: losses(checkpointed, [vector()]),
    "channels_last": lambda _: losses(convolutions, [images()]),
    "pad_vocabulary": lambda _: losses(lambda: Tied(1_027), [torch.arange(32)]),
    "matmul_precision": lambda _: losses(mlp, [vector()]),
    "autocast": lambda _: losses(mlp, [vector()]),
    # What a remedy changes, or not.
    "adam": lambda _: torch.optim.Adam(mlp().parameters()).defaults["fused"],
    "rmsprop": lambda _: torch.optim.RMSprop(mlp().parameters()).defaults["foreach"],
    "sgd": lambda _: torch.optim.SGD(mlp().parameters(), 0.1).defaults["foreach"],
    "precision": lambda _: torch.get_float32_matmul_precision(),
    "type": lambda _: mlp()(vector()).dtype,
    "alike": lambda _: torch.equal(mlp()(vector()), mlp()(vector())),
    "workers": lambda _: Loader([1, 2], 2).persistent_workers,
    "by_position": lambda _: Loader([1, 2], 2, False, None, None, 0).num_workers,
    "switched": switched,
    "turned": turned,
    "benchmark": lambda run: turned_settings(run, lambda: torch.backends.cudnn.benchmark),
    "precisions": lambda run: turned_settings(run, torch.get_float32_matmul_precision),
    "groups": lambda run: turned_groups(run, {"foreach": True}, {}, {"fused": False}, {}),
    "own_groups": lambda run: turned_groups(run, {"foreach": False}, {"foreach": True}),
    "layouts": lambda run: turned_layouts(run, True, False),
    "own_layouts": lambda run: turned_layouts(run, True, True),
    "noisy": noisy,
    "counts": counts,
    # What a remedy is wrong for.
    "group_norm": lambda _: losses(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), [images()]
    ),
    "fourier": fourier,
    "stream": lambda _: Loader(Stream()),
    "none": lambda _: 0,
    # With a GPU.
    "to_gpu": lambda _: vector().to("cuda"),
    "to_cpu": lambda _: vector().to("cpu"),
    "to_type": lambda _: vector().to(torch.float16),
    "to_device": lambda _: vector().to(device="cuda"),
    "pinned": lambda _: Loader([1]).pin_memory,
    "emptied": lambda _: torch.cuda.empty_cache(),
    "buckets": buckets,
    "compiled": lambda _: (losses(mlp, [vector()]), GRAPHS),
    "compiled_not_now": lambda _: losses(mlp, [vector()]) and GRAPHS,
    "compiled_by_hand": lambda _: (
        losses(lambda: torch.compile(mlp(), backend=counted_graph), [vector()]),
        GRAPHS,
    ),
}

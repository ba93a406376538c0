"""What each remedy does to torch, in a process of its own: results stay, or the run is rejected."""

import gc
import multiprocessing
import tempfile
import warnings

import pytest

from traceview.recorders.injected.traceview_injected.annotations import torch_calls
from traceview.remedies import BY_NAME
from traceview.remedies.compile_model import compile_models

torch = pytest.importorskip("torch")
nn = torch.nn


pytestmark = pytest.mark.long


class Rejected(BaseException):
    """Ends a run in place of the end of its process."""


class FakeRun:
    def __init__(self):
        self.on, self.calls = True, []

    def applied(self, callee="", keywords=None):
        self.calls.append((callee, dict(keywords or {})))

    def reject(self, reason):
        raise Rejected(reason)

    def at_switch(self, switch):
        switch(True)


def told(pipe, name, program, prepare, install):
    # What other tests have imported may not be collected in a forked process.
    gc.disable()
    torch.set_num_threads(1)
    run = FakeRun()
    try:
        if prepare:
            prepare()
        torch.manual_seed(0)
        if name:
            (install or BY_NAME[name].install)(torch, run)
        pipe.send((program(run), run.calls, None))
    except Rejected as rejected:
        pipe.send((None, run.calls, str(rejected)))


def forked(name, program, prepare=None, install=None):
    """What a program returns in a forked process with a remedy, its calls, and why it ended."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=told, args=(theirs, name, program, prepare, install))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join(60)


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


KEPT = {
    "fused": lambda _: losses(mlp, [vector()], torch.optim.AdamW),
    "foreach": lambda _: losses(mlp, [vector()], torch.optim.Adam),
    "zero_grad": lambda _: losses(mlp, [vector()]),
    "checkpoints": lambda _: losses(checkpointed, [vector()]),
    "channels_last": lambda _: losses(convolutions, [images()]),
    "pad_vocabulary": lambda _: losses(lambda: Tied(1_027), [torch.arange(32)]),
    "matmul_precision": lambda _: losses(mlp, [vector()]),
    "autocast": lambda _: losses(mlp, [vector()]),
}


@pytest.mark.parametrize("name", KEPT)
def test_results_stay_within_what_a_remedy_may_change(name):
    plain, _, _ = forked("", KEPT[name])
    changed, calls, rejected = forked(name, KEPT[name])
    assert rejected is None
    assert calls
    for step, (before, after) in enumerate(zip(plain, changed, strict=True)):
        assert after == pytest.approx(before, rel=BY_NAME[name].bound * (step + 1))


@pytest.mark.parametrize(
    ("name", "program", "expected"),
    [
        ("fused", lambda _: torch.optim.Adam(mlp().parameters()).defaults["fused"], True),
        ("fused", lambda _: torch.optim.RMSprop(mlp().parameters()).defaults["foreach"], None),
        ("foreach", lambda _: torch.optim.SGD(mlp().parameters(), 0.1).defaults["foreach"], True),
        ("matmul_precision", lambda _: torch.get_float32_matmul_precision(), "high"),
        ("autocast", lambda _: mlp()(vector()).dtype, torch.float32),
        ("autocast", lambda _: torch.equal(mlp()(vector()), mlp()(vector())), False),
        (
            "num_workers",
            lambda _: torch.utils.data.DataLoader([1, 2], 2).persistent_workers,
            True,
        ),
    ],
)
def test_arguments_and_settings_change(name, program, expected):
    assert forked(name, program)[0] == expected


def test_off_in_a_block_is_as_without():
    def program(run):
        results = []
        for on in (True, False, True):
            run.on = on
            model, x = checkpointed(), vector().requires_grad_()
            calls = []
            model.inner[0].register_forward_hook(lambda *_, calls=calls: calls.append(1))
            model(x).sum().backward()
            results.append(len(calls))
        return results

    assert forked("checkpoints", program)[0] == [1, 2, 1]


def test_keywords_passed_by_position_stay():
    def program(_):
        return torch.utils.data.DataLoader([1, 2], 2, False, None, None, 0).num_workers

    # Workers that are kept need workers: none of both.
    assert forked("num_workers", program)[::2] == (0, None)


def fourier(_):
    class Transform(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return torch.fft.rfft2(self.first(x)).real

    return losses(Transform, [images()])


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(4))


@pytest.mark.parametrize(
    ("name", "program", "reason"),
    [
        (
            "channels_last",
            lambda _: losses(
                lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), [images()]
            ),
            "the model has GroupNorm",
        ),
        ("channels_last", fourier, "torch.fft"),
        ("num_workers", lambda _: torch.utils.data.DataLoader(Stream()), "IterableDataset"),
        *((name, lambda _: 0, "GPU") for name in ("pin_memory", "non_blocking", "empty_cache")),
        *((name, lambda _: 0, "GPU") for name in ("cudnn_benchmark", "cuda_graph")),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_what_is_wrong_for_a_program_is_rejected(name, program, reason):
    result, _, rejected = forked(name, program)
    assert result is None
    assert reason in rejected


def with_gpu():
    """A torch that claims a GPU, and notes uploads in place of doing them."""
    torch.cuda.is_available = lambda: True
    torch.Tensor.is_pinned = lambda _: True
    torch.Tensor.to = lambda _self, *args, **named: (args, named)
    torch.cuda.empty_cache = lambda: pytest.fail("called")


@pytest.mark.parametrize(
    ("name", "program", "expected"),
    [
        ("non_blocking", lambda _: vector().to("cuda"), (("cuda",), {"non_blocking": True})),
        ("non_blocking", lambda _: vector().to("cpu"), (("cpu",), {})),
        ("non_blocking", lambda _: vector().to(torch.float16), ((torch.float16,), {})),
        (
            "non_blocking",
            lambda _: vector().to(device="cuda"),
            ((), {"device": "cuda", "non_blocking": True}),
        ),
        ("pin_memory", lambda _: torch.utils.data.DataLoader([1]).pin_memory, True),
        ("empty_cache", lambda _: torch.cuda.empty_cache(), None),
    ],
)
def test_what_needs_a_gpu(name, program, expected):
    assert forked(name, program, prepare=with_gpu)[::2] == (expected, None)


def test_models_are_compiled_as_one_graph_below_the_hooks():
    def program(_):
        warnings.simplefilter("ignore")  # pytest turns those of torch into errors
        return losses(mlp, [vector()]), graphs

    graphs = []

    def backend(graph, _):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    def install(torch, run):
        torch_calls.wrap(torch, name_modules=False, carrier=(lambda text: text, id))
        compile_models(torch, run, backend=backend)

    def by_hand(_):
        warnings.simplefilter("ignore")
        return losses(lambda: torch.compile(mlp(), backend=backend), [vector()]), graphs

    plain, calls, _ = forked("", by_hand)
    assert not calls
    compiled, calls, _ = forked("compile", program, install=install)
    assert len(calls) == 1
    assert compiled == plain
    assert len(plain[1]) == 1


def test_gradients_are_views_of_buckets():
    def program(_):
        with tempfile.NamedTemporaryFile() as store:
            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{store.name}", rank=0, world_size=1
            )
            return nn.parallel.DistributedDataParallel(mlp()).gradient_as_bucket_view

    assert forked("bucket_view", program)[0] is True

"""Uses of torch that look closely at its functions. Prints what came of each.

To be run twice, as it is and with the calls that can wait wrapped: the output must be the same.
"""

import copy
import io
import pickle
import sys
import tempfile
import warnings
from pathlib import Path

import torch

# Names that a program has taken before it compiles anything.
from torch import where as taken_where

warnings.simplefilter("ignore")
X = torch.tensor([2.0, 1.0, 2.0, 3.0, 4.0, 5.0])
SCRIPT = """
import torch
def f(x):
    y = torch.where(x > 2, x, -x)
    if bool(x.sum() > 3) and torch.equal(x, x) and torch.allclose(x, x):
        y = y + float(x.sum().item())
    found = torch.nonzero(x), torch.unique(x), torch.unique_consecutive(x), x[x > 2]
    made = torch.tensor([1.0, 2.0]), torch.repeat_interleave(x, 2), torch.masked_select(x, x > 1)
    return y.to(torch.float64), x.cpu(), torch.bincount(x.to(torch.int64)), found, made
"""


def tried(function, *arguments):
    try:
        return str(function(*arguments))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"


def values():
    y = X.clone()
    y[1] = 7
    y[y > 6] = 0
    y[[0, 2]] = 5.0
    y[torch.tensor([1])] = torch.tensor([9.0])
    taken = y.tolist(), y[1:3], y[y > 3], y[y.long() > 4, ...], y[torch.tensor(2)], y[None, 0]
    numbers = bool(y[0]), int(y[0]), float(y[0]), complex(y[0]), list(range(9))[torch.tensor(2)]
    texts = f"{y[0]:.2f}", repr(y), str(y), str(torch.nn.Parameter(y)), 5.0 in y
    moved = y.to(torch.float64), y.to("cpu") is y, y.to(X), y.cpu(), y.numpy().sum(), y.copy_(X)
    sized = y.nonzero(), torch.nonzero(y, as_tuple=True), torch.where(y > 3), y.argwhere()
    more = torch.unique(y, return_counts=True), y.unique(dim=0), torch.unique_consecutive(y)
    repeated = y.repeat_interleave(2), torch.repeat_interleave(torch.tensor([1, 2]))
    counted = torch.bincount(y.long()), torch.histc(y), torch.masked_select(y, y > 3)
    compared = torch.equal(y, y), torch.allclose(y, y), torch.is_nonzero(y[1]), y.equal(y)
    made = torch.as_tensor([1.0]), torch.tensor(3).item(), torch.tensor([torch.tensor(1.0)])
    return taken, numbers, texts, moved, sized, more, repeated, counted, compared, made


def a_subclass():
    seen = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            known = (torch.where, torch.nonzero, torch.equal, torch.Tensor.item, torch.Tensor.to)
            seen.append((func.__name__, [func is one for one in known]))
            return super().__torch_function__(func, types, args, kwargs or {})

    own = X.as_subclass(Own)
    torch.where(own > 2, own, own)
    own[0] = own[1]
    for work in (torch.nonzero, torch.unique, torch.where, repr, bool, torch.Tensor.cpu):
        tried(work, own)
    return own.sum().item(), own.to(torch.float64), torch.equal(own, own), own.tolist(), seen


def a_table_of_handlers():
    class Own:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return handlers[func](*args) if func in handlers else NotImplemented

    handlers = {torch.where: lambda *_: "where", torch.equal: lambda *_: "equal"}
    own = Own()
    # Without a handler it is a TypeError, whose words differ.
    missing = tried(torch.nonzero, own).partition(":")[0]
    return torch.where(own, own, own), torch.equal(own, X), missing


def a_subclass_that_knows_one_function():
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is not torch.Tensor.item:
                return NotImplemented
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    return X[1:2].as_subclass(Own).item()


def a_function_mode():
    from torch.overrides import TorchFunctionMode

    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append((func.__name__, func is torch.where, func is torch.tensor))
            return func(*args, **(kwargs or {}))

    y = X.clone()
    with Mode():
        y[0] = torch.where(y > 2, y, y)[1]
        outcome = torch.tensor([1]), y.to(torch.int), y.sum().item(), torch.unique(y), bool(y[0])
    return outcome, seen


def a_dispatch_mode():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        X.sum().item(), X.to(torch.float64), X[X > 2], torch.unique(X), X.nonzero()
    return seen


def a_default_device():
    with torch.device("meta"):
        return torch.tensor([1.0]).device, torch.ones(3).device, torch.as_tensor([2.0]).device


def the_list_of_functions():
    from torch.overrides import (
        get_overridable_functions,
        get_testing_overrides,
        is_tensor_method_or_property,
        resolve_name,
    )

    listed, tested = get_overridable_functions(), get_testing_overrides()
    names = [resolve_name(function) for function in (torch.where, torch.Tensor.to)]
    kinds = [is_tensor_method_or_property(f) for f in (torch.where, torch.Tensor.item)]
    there = torch.where in listed[torch], torch.Tensor.to in listed[torch.Tensor]
    return (
        sum(map(len, listed.values())),
        len(tested),
        torch.Tensor.item in tested,
        names,
        kinds,
        there,
    )


def pickling():
    functions = (torch.where, torch.nonzero, torch.save, torch.cuda.synchronize, torch.tensor)
    same = [pickle.loads(pickle.dumps(function)) is function for function in functions]
    method = pickle.loads(pickle.dumps(torch.Tensor.item))
    file = io.BytesIO()
    torch.save({"x": X}, file)
    file.seek(0)
    return same, method(torch.tensor(3.0)), copy.deepcopy(X), torch.load(file)


def script():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scripted.py")
        path.write_text(SCRIPT)
        sys.path.insert(0, folder)
        import scripted

        return torch.jit.script(scripted.f)(X)


def tracing():
    def work(x):
        return torch.where(x > 2, x, -x)[1:3].to(torch.float64) + torch.nonzero(x).sum()

    traced = torch.jit.trace(work, (X,))
    graph = torch.fx.symbolic_trace(work)
    targets = [
        torch.fx.node._get_qualified_name(n.target) for n in graph.graph.nodes if callable(n.target)
    ]
    return traced(X), graph.code, targets, pickle.loads(pickle.dumps(graph))(X)


def exporting():
    from torch.fx.experimental.proxy_tensor import make_fx

    class Work(torch.nn.Module):
        def forward(self, x):
            return torch.where(x > 2, x, -x)[1:3].to(torch.float64) + torch.tensor([1.0, 2.0])

    codes = [
        torch.export.export(Work(), (X,), strict=strict).graph_module.code
        for strict in (False, True)
    ]
    return codes, make_fx(Work(), tracing_mode="symbolic")(X).code


def fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(X)
        shapes = (
            fake.to(torch.float64).shape,
            torch.where(fake > 2, fake, fake).shape,
            fake[1:].shape,
        )
        return (
            shapes,
            repr(fake),
            *(tried(f, fake) for f in (torch.Tensor.item, bool, torch.nonzero)),
        )


def transforms():
    mapped = torch.vmap(lambda a: torch.where(a > 2, a, -a).to(torch.float64))(X)
    slope = torch.func.grad(lambda a: torch.where(a > 2, a, -a)[1:].sum())(X)
    refused = [
        tried(torch.vmap(f), X)
        for f in (torch.Tensor.item, bool, torch.nonzero, lambda a: a.tolist())
    ]
    return mapped, slope, refused


def training():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2).to(torch.float64).cpu()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 2, dtype=torch.float64)).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return loss.item(), pickle.loads(pickle.dumps(optimizer.state_dict()))["state"][0]["step"]


def loading():
    from torch.utils.data import DataLoader, TensorDataset

    return [batch for (batch,) in DataLoader(TensorDataset(X), batch_size=4)]


def odd_tensors():
    from torch.masked import masked_tensor

    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    masked = masked_tensor(X, X > 2)
    return ragged.unbind(), ragged.to(torch.float64).dtype, masked[1:4], X.to_sparse().to_dense()


def distributed():
    import torch.distributed as group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    with tempfile.TemporaryDirectory() as folder:
        group.init_process_group("gloo", f"file://{folder}/meet", rank=0, world_size=1)
        parts = distribute_tensor(X, init_device_mesh("cpu", (1,)), [Shard(0)])
        sums = parts.to(torch.float64).to_local(), parts.sum().full_tensor().item()
        found = parts[1:3].to_local(), torch.where(parts > 2, parts, -parts).to_local()
        group.destroy_process_group()
    return sums, found


COMPILED = {
    "to": lambda x: x.to(torch.float64) + 1,
    "to device": lambda x: x.to("cpu") + x.cpu(),
    "copy_": lambda x: torch.empty_like(x).copy_(x),
    "slices": lambda x: x[1:3] + x[0] + x[None, 1],
    "gather": lambda x: x[torch.tensor([0, 1])],
    "mask": lambda x: x[x > 2],
    "where": lambda x: torch.where(x > 2, x, -x) + taken_where(x > 2, x, x),
    "where alone": lambda x: torch.where(x > 2),
    "tensor": lambda x: x + torch.tensor([1.0] * 6) + torch.as_tensor(3.0),
    "unbound to": lambda x: torch.Tensor.to(x, torch.float64),
    "unbound getitem": lambda x: torch.Tensor.__getitem__(x, 0),
    "map": lambda x: sum(map(torch.Tensor.cpu, [x, x])),
    "item": lambda x: x * x.sum().item() + float(x.sum()) + int(x.sum()),
    "bool": lambda x: x + 1 if x.sum() > 3 and bool(x.sum() > 3) else x - 1,
    "tolist": lambda x: x * x.tolist()[1],
    "contains": lambda x: x * (2.0 in x),
    "nonzero": lambda x: torch.nonzero(x) + x.nonzero(),
    "unique": lambda x: torch.unique(x),
    "repeats": lambda x: torch.repeat_interleave(x, 2),
    "bincount": lambda x: torch.bincount(x.long(), minlength=8),
    "equal": lambda x: x + 1 if torch.equal(x, x) and torch.allclose(x, x) else x,
}


def compiling(backend="eager"):
    from torch._dynamo.utils import counters

    outcomes = []
    for name, function in COMPILED.items():
        for whole in (True, False):
            torch._dynamo.reset()
            counters.clear()
            compiled = torch.compile(function, backend=backend, fullgraph=whole)
            # Called again, it must not be compiled again.
            said = [tried(compiled, X) for _ in range(3)][-1].split(":")[0]
            breaks = sum(counters["graph_break"].values())
            outcomes.append((name, whole, said, breaks, sorted(counters["stats"].items())))
    return outcomes


def compiling_with_inductor():
    from torch._dynamo.utils import counters
    from torch._inductor import config

    # What the C++ compiler does with the code is not in question: no header of its own, no worker.
    config.cpp_cache_precompile_headers, config.cpp.simdlen, config.compile_threads = False, 1, 1
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(COMPILED["where"], fullgraph=True)
    said, cached = (compiled(X), compiled(X)), counters["aot_autograd"]
    return said, cached["total"], cached["ok"], cached["autograd_cache_bypass"]


def a_backend():
    seen = []

    def backend(module, _):
        seen.extend((n.op, str(n.target), n.target is torch.where) for n in module.graph.nodes)
        return module.forward

    torch._dynamo.reset()
    done = torch.compile(lambda x: torch.where(x > 2, x, -x)[1:], backend=backend)(X)
    return done, [(op, where) for op, _, where in seen]


USES = (
    values,
    a_subclass,
    a_table_of_handlers,
    a_subclass_that_knows_one_function,
    a_function_mode,
    a_dispatch_mode,
    a_default_device,
    the_list_of_functions,
    pickling,
    script,
    tracing,
    fake_tensors,
    transforms,
    training,
    loading,
    odd_tensors,
    distributed,
    exporting,
    compiling,
    compiling_with_inductor,
    a_backend,
)

if __name__ == "__main__":
    for use in USES:
        print(use.__name__, tried(use))
    print("wrapped", hasattr(torch.Tensor.item, "__wrapped__"))

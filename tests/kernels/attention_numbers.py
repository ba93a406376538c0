"""Run as a program: attention and its gradients against float64, as JSON.

python -m tests.kernels.attention_numbers interpreter|gpu
"""

import itertools
import json
import os
import sys

os.environ["TRITON_INTERPRET"] = str(int(sys.argv[1] == "interpreter"))

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels import flash_attention, flash_attention_backward
from traceview.base.errors import InputError

DEVICE = "cpu" if sys.argv[1] == "interpreter" else "cuda"
# tests.kernels.numbers has more of them.
LENGTHS = (1, 131) if DEVICE == "cpu" else (1, 65, 128, 1000, 2049, 4096)
TYPES = (torch.float16, torch.bfloat16)


def random(*shape: int, dtype: torch.dtype, seed: int, spread: float = 1) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=made) * spread).to(dtype).to(DEVICE)


def error(given: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference as a share of the largest magnitude; of one query dQ and dK are 0."""
    assert given.shape == wanted.shape
    given, wanted = given.double(), wanted.double()
    return float((given - wanted).abs().max() / wanted.abs().max().clamp(min=1e-3))


def qkvg(n: int, d: int, dtype: torch.dtype, heads: int = 2, spread: float = 1):
    shape = (1, heads, n, d)
    return (random(*shape, dtype=dtype, seed=n + each, spread=spread) for each in range(4))


def true(q, k, v, g, causal):
    """By autograd in float64, with nothing of ours: o, lse, dq, dk, dv."""
    q, k, v = (each.double().requires_grad_() for each in (q, k, v))
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    if causal:
        n = q.shape[-2]
        allowed = torch.arange(n)[:, None] >= torch.arange(n)[None, :]
        scores = scores.masked_fill(~allowed.to(DEVICE), -torch.inf)
    lse = scores.logsumexp(-1)
    o = torch.einsum("bhij,bhjd->bhid", (scores - lse[..., None]).exp(), v)
    o.backward(g.double())
    return o.detach(), lse.detach(), q.grad, k.grad, v.grad


def ours(q, k, v, g, causal, tile=None, key=None, query=None):
    o, lse = flash_attention.forward(q, k, v, causal, tile)
    return o, lse, *flash_attention_backward.backward(q, k, v, o, lse, g, causal, query, key)


def errors(given, wanted):
    names = ("o", "lse", "dq", "dk", "dv")
    pairs = zip(names, given, wanted, strict=True)
    return {name: error(*pair) for name, *pair in pairs}


def shapes():
    for n, d, causal, dtype in itertools.product(LENGTHS, (64, 128), (False, True), TYPES):
        if DEVICE == "cpu" and (d == 128) == (dtype == torch.float16) and n == 131:
            continue  # The longest, half of them: what a type changes does not hang on n.
        given = tuple(qkvg(n, d, dtype))
        yield (
            f"n={n} d={d} causal={causal}",
            dtype,
            errors(ours(*given, causal), true(*given, causal)),
        )


def tiles():
    """Every tile, at a length that none of them divides."""
    module = flash_attention_backward
    for d, causal in ((64, False), (128, True)):
        given = tuple(qkvg(150, d, torch.float16, heads=1))
        wanted = true(*given, causal)
        lists = (flash_attention.FORWARD_TILES[d], module.KEY_TILES[d], module.QUERY_TILES[d])
        for three in itertools.zip_longest(*lists):
            found = ours(*given, causal, *three)
            yield f"d={d} tiles {three}", torch.float16, errors(found, wanted)


def large_scores():
    """Scores of hundreds: exp() of them would be infinite in fp32, and 0 for most keys."""
    for causal in (False, True):
        given = tuple(qkvg(140, 64, torch.float16, heads=1, spread=8))
        found, wanted = ours(*given, causal), true(*given, causal)
        yield f"large scores causal={causal}", torch.float16, errors(found, wanted)
    # Every score far below zero: a key beyond the end, which reads as 0, would outweigh them all.
    q, k, v, g = qkvg(70, 64, torch.float16, heads=1)
    q, k = q.abs() + 4, -k.abs() - 4
    found, wanted = ours(q, k, v, g, False), true(q, k, v, g, False)
    yield "scores far below zero", torch.float16, errors(found, wanted)


def autograd():
    """The function for autograd; a gradient that repeats one number is not contiguous."""
    q, k, v, _ = (each.requires_grad_() for each in qkvg(40, 64, torch.float16))
    o = flash_attention_backward.attention(q, k, v, causal=True)
    o.sum().backward()
    wanted = true(q.detach(), k.detach(), v.detach(), torch.ones_like(o), True)
    found = (o.detach(), wanted[1], q.grad, k.grad, v.grad)
    yield "autograd", torch.float16, errors(found, wanted)
    # The gradient of what stood second in a `cat` is a slice, here from 2 bytes on.
    q, k, v, _ = (each.detach().requires_grad_() for each in (q, k, v, q))
    o = flash_attention_backward.attention(q, k, v, causal=True)
    both = torch.cat([o.new_ones(1), o.flatten()])
    weights = random(both.numel(), dtype=torch.float16, seed=1)
    (both * weights).sum().backward()
    g = weights[1:].view(o.shape)
    wanted = true(q.detach(), k.detach(), v.detach(), g, True)
    found = (o.detach(), wanted[1], q.grad, k.grad, v.grad)
    yield "autograd of a slice", torch.float16, errors(found, wanted)


def against_torch():
    """On a GPU, real sizes: the results and gradients of scaled_dot_product_attention."""
    for d, causal, dtype, n in itertools.product((64, 128), (False, True), TYPES, (4096, 4001)):
        q, k, v, g = (each.requires_grad_() for each in qkvg(n, d, dtype, heads=16))
        o = flash_attention_backward.attention(q, k, v, causal)
        found = (o, *torch.autograd.grad(o, (q, k, v), g))
        o = scaled_dot_product_attention(q, k, v, is_causal=causal)
        wanted = (o, *torch.autograd.grad(o, (q, k, v), g))
        each = {name: error(*pair) for name, *pair in zip("oqkv", found, wanted, strict=True)}
        yield f"torch n={n} d={d} causal={causal}", dtype, each


def causes() -> dict[str, object]:
    """What no comparison of values says."""
    q, k, v, _ = qkvg(100, 64, torch.float16)
    before = flash_attention.with_triton(q, k, v, causal=True)
    k[:, :, 70:], v[:, :, 70:] = 9, 60000
    after = flash_attention.with_triton(q, k, v, causal=True)
    lse = flash_attention.forward(q, k, v, True)[1]
    return {
        "later keys are not seen": bool((before[:, :, :70] == after[:, :, :70]).all()),
        "lse": [str(lse.dtype), list(lse.shape)],
        "refused": [refusal(*each) for each in refused()],
    }


def refused():
    x = torch.zeros(1, 2, 8, 64, dtype=torch.float16, device=DEVICE)
    yield x, x[:, :, :4].contiguous(), x
    yield x.transpose(1, 2), x.transpose(1, 2), x.transpose(1, 2)
    yield (x[..., :32].contiguous(),) * 3
    yield (x.float(),) * 3
    yield (x[0],) * 3
    yield x, x.bfloat16(), x
    yield (x[:0],) * 3
    yield (x.flatten()[1:513].view(1, 1, 8, 64),) * 3
    yield (x[:, :1, :1].expand(66000, 1, 1, 64).contiguous(),) * 3


def refusal(*given) -> str:
    try:
        flash_attention_backward.attention(*given)
    except InputError as refused:
        return str(refused)
    return "not refused"


def memory() -> list[int]:
    """Bytes held at most by a forward and backward pass of 4,096, 8,192 and 16,384 tokens."""
    peaks = []
    for n in (4096, 8192, 16384):
        q, k, v, g = (each.requires_grad_() for each in qkvg(n, 128, torch.bfloat16, heads=16))
        torch.cuda.reset_peak_memory_stats()
        flash_attention_backward.attention(q, k, v, causal=True).backward(g)
        peaks.append(torch.cuda.max_memory_allocated())
        del q, k, v, g
    return peaks


def main() -> None:
    rows = [shapes(), tiles(), large_scores(), autograd()]
    if DEVICE == "cuda":
        rows.append(against_torch())
    for name, dtype, found in itertools.chain(*rows):
        print(json.dumps([name, str(dtype).removeprefix("torch."), found]), flush=True)
    print(json.dumps({**causes(), "memory": memory() if DEVICE == "cuda" else None}))


if __name__ == "__main__":
    main()

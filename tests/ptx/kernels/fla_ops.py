"""Operations of flash-linear-attention, forward and backward."""

import torch
from fla.ops.delta_rule import chunk_delta_rule
from fla.ops.gla import chunk_gla, fused_recurrent_gla

SHAPE = (1, 32, 1, 32)


def tensor(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def gates(*shape):
    return torch.rand(*shape, device="cuda").log().to(torch.bfloat16).requires_grad_()


def backward(result):
    result[0].sum().backward()


backward(chunk_gla(tensor(*SHAPE), tensor(*SHAPE), tensor(*SHAPE), gates(*SHAPE)))
backward(fused_recurrent_gla(tensor(*SHAPE), tensor(*SHAPE), tensor(*SHAPE), gates(*SHAPE)))
backward(
    chunk_delta_rule(
        tensor(*SHAPE),
        tensor(*SHAPE),
        tensor(*SHAPE),
        torch.rand(*SHAPE[:3], device="cuda", dtype=torch.bfloat16).requires_grad_(),
        use_qk_l2norm_in_kernel=True,
    )
)

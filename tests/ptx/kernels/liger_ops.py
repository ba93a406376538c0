"""Operations of liger-kernel, forward and backward, as a training loop would call them."""

import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
from liger_kernel.ops.geglu import LigerGELUMulFunction
from liger_kernel.ops.group_norm import LigerGroupNormFunction
from liger_kernel.ops.jsd import LigerJSDFunction
from liger_kernel.ops.kl_div import LigerKLDivLossFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.rope import LigerRopeFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction

ROWS, WIDTH = 128, 1024


def tensor(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=True)


def backward(result):
    first = result[0] if isinstance(result, tuple) else result
    first.sum().backward()


weight, bias = tensor(WIDTH), tensor(WIDTH)
targets = torch.randint(0, WIDTH, (ROWS,), device="cuda")
backward(LigerRMSNormFunction.apply(tensor(ROWS, WIDTH), weight, 1e-6))
backward(LigerLayerNormFunction.apply(tensor(ROWS, WIDTH), weight, bias, 1e-6))
backward(LigerSiLUMulFunction.apply(tensor(ROWS, WIDTH), tensor(ROWS, WIDTH)))
backward(LigerGELUMulFunction.apply(tensor(ROWS, WIDTH), tensor(ROWS, WIDTH)))
backward(LigerSoftmaxFunction.apply(tensor(ROWS, WIDTH)))
backward(LigerCrossEntropyFunction.apply(tensor(ROWS, WIDTH), targets, None, -100))
backward(LigerFusedLinearCrossEntropyFunction.apply(tensor(ROWS, 256), tensor(WIDTH, 256), targets))
backward(LigerKLDivLossFunction.apply(tensor(ROWS, WIDTH), tensor(ROWS, WIDTH), "batchmean"))
backward(LigerJSDFunction.apply(tensor(ROWS, WIDTH), tensor(ROWS, WIDTH)))
backward(
    LigerGroupNormFunction.apply(
        tensor(4, 32, 64, dtype=torch.float32),
        tensor(32, dtype=torch.float32),
        tensor(32, dtype=torch.float32),
        32,
        8,
        1e-5,
    )
)
angles = torch.randn(1, ROWS, 64, device="cuda", dtype=torch.bfloat16)
backward(LigerRopeFunction.apply(tensor(2, 8, ROWS, 64), tensor(2, 2, ROWS, 64), angles, angles))

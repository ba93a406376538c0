"""A kernel in Pallas of JAX 0.10.2, compiled by XLA ahead of time for an H100 that is not there.

JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 XLA_FLAGS="--xla_dump_to=xla
--xla_gpu_target_config_filename=h100.pbtxt" PYTHON pallas_kernels.py h100.pbtxt
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental import topologies
from jax.experimental.pallas import triton


def gelu_kernel(x_ref, y_ref):
    x = x_ref[...]
    y_ref[...] = x * jax.nn.sigmoid(1.702 * x)


def gelu(x):
    block = pl.BlockSpec((1024,), lambda i: (i,))
    return pl.pallas_call(
        gelu_kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // 1024,),
        in_specs=[block],
        out_specs=block,
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=1),
    )(x)


if __name__ == "__main__":
    config = Path(sys.argv[1]).read_text()
    gpus = topologies.get_topology_desc(
        platform="cuda", topology_name="h100", target_config=config, topology="1x1x1"
    )
    one = jax.sharding.SingleDeviceSharding(gpus.devices[0])
    jitted = jax.jit(gelu, in_shardings=one, out_shardings=one)
    jitted.lower(jax.ShapeDtypeStruct((1 << 20,), jnp.float32)).compile()

"""A kernel in cuTile 1.7.0 (tileiras of CUDA 13.5), compiled without a GPU."""

import cuda.tile as ct
from cuda.tile.compilation import (
    ArrayConstraint,
    CallingConvention,
    ConstantConstraint,
    KernelSignature,
    ScalarConstraint,
    export_kernel,
)


@ct.kernel
def scale_tile(x, y, a, TILE: ct.Constant[int]):
    i = ct.bid(0)
    tile = ct.load(x, index=(i,), shape=(TILE,))
    ct.store(y, index=(i,), tile=tile * a)


def vector():
    return ArrayConstraint(
        ct.float32,
        1,
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(1,),
        shape_divisible_by=16,
        base_addr_divisible_by=16,
    )


if __name__ == "__main__":
    parameters = (vector(), vector(), ScalarConstraint(ct.float32), ConstantConstraint(1024))
    signature = KernelSignature(parameters, CallingConvention.cutile_python_v1())
    export_kernel(
        scale_tile,
        [signature],
        "cutile-1.7.0-sm90.cubin",
        gpu_code="sm_90",
        output_format="cubin",
    )

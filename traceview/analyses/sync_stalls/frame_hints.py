"""The call of a program that a C++ frame belongs to.

Sources: the names that torch/csrc/autograd/python_variable_methods.cpp (template), its neighbours
for indexing, streams and events, and torch/csrc/cuda/Module.cpp bind to Python (PyTorch 2.6 to
2.13, read off the symbols of libtorch_python.so and off call chains recorded on an H200 with
2.11); the kernels of aten/src/ATen/native/cuda that copy a size or a value to the host; CuPy's
cupy_backends/cuda/api/runtime.pyx, whose functions keep their names in the C that Cython writes.
"""

from __future__ import annotations

import re

_METHODS = (
    "item tolist numpy cpu cuda to type copy_ nonzero argwhere masked_select bincount histc equal "
    "allclose is_nonzero repeat_interleave pin_memory to_sparse new_tensor double float half"
)
# Python calls, by the C++ function that is bound to them.
BOUND = {
    "bool_scalar": "Tensor.__bool__",
    "integral_scalar": "Tensor.__int__",
    "index_scalar": "Tensor.__index__",
    "float_scalar": "Tensor.__float__",
    "complex_scalar": "Tensor.__complex__",
    "getitem": "Tensor.__getitem__",
    "setitem": "Tensor.__setitem__",
    **{name: f"Tensor.{name}" for name in _METHODS.split()},
    "_unique2": "torch.unique",
    "_unique": "torch.unique",
    "unique_dim": "torch.unique",
    "unique_consecutive": "torch.unique_consecutive",
    "tensor": "torch.tensor",
    "as_tensor": "torch.as_tensor",
    "one_hot": "torch.nn.functional.one_hot",
}
_VARIABLE = re.compile(r"(?:^|[ :])THPVariable_(\w+?)(?:\[abi:\w+\])?(?:\(|<|$)")
_NAMED = (
    (r"\bTHCPModule_cudaSynchronize\b", "torch.cuda.synchronize"),
    (r"\bTHCPModule_emptyCache\b|\bTHCPModule_empty_cache\b", "torch.cuda.empty_cache"),
    (r"\bTHCPStream_synchronize\b|\bTHPStream_synchronize\b", "torch.cuda.Stream.synchronize"),
    (r"\bTHCPEvent_synchronize\b|\bTHPEvent_synchronize\b", "torch.cuda.Event.synchronize"),
    (r"\bTHPStorage_copy_", "UntypedStorage.copy_"),
)

# Functions inside torch and CuPy that wait, for stacks without a Python call (autograd's thread).
_INSIDE = (
    (r"\bat::native::_local_scalar_dense_cuda\b", "Tensor.item"),
    (r"\bat::native::is_nonzero\b", "Tensor.is_nonzero"),
    (r"\bat::native::nonzero(_out)?_cuda\b", "Tensor.nonzero"),
    (r"\bat::native::masked_select(_out)?_cuda\b", "Tensor.masked_select"),
    (r"\bat::native::_?unique\w*_cuda\b", "torch.unique"),
    (r"\bat::native::repeat_interleave\w*\b", "Tensor.repeat_interleave"),
    (r"\bat::native::_?bincount_cuda\b", "Tensor.bincount"),
    (r"\bat::native::cuda_equal\b", "Tensor.equal"),
    (r"\bat::native::(copy_kernel_cuda|_to_copy|copy_)\b", "Tensor.to or copy_"),
    (r"\bcupy_backends\b.*\bstreamSynchronize\b", "cupy.cuda.Stream.synchronize"),
    (r"\bcupy_backends\b.*\beventSynchronize\b", "cupy.cuda.Event.synchronize"),
    (r"\bcupy_backends\b.*\bdeviceSynchronize\b", "cupy.cuda.Device.synchronize"),
    (r"\bc10::cuda::CUDACachingAllocator::emptyCache\b", "torch.cuda.empty_cache"),
)
_OPERATOR = re.compile(r"\bat::_ops::(\w+)::")
_FUNCTION = re.compile(r"(?:^|\s)(at::(?:\w+::)*\w+)\(")


def python_call(symbol: str) -> str | None:
    """The Python call bound to this frame; None for any other frame."""
    method = _VARIABLE.search(symbol)
    if method:
        return BOUND.get(method[1], f"aten::{method[1]}")
    return next((hint for pattern, hint in _NAMED if re.search(pattern, symbol)), None)


def inner_call(symbol: str) -> str | None:
    """The call behind a frame inside torch or CuPy that is known to wait; else None."""
    return next((hint for pattern, hint in _INSIDE if re.search(pattern, symbol)), None)


def operator(symbol: str) -> str | None:
    """The operator or function of torch's library in a frame, such as `aten::addmm`."""
    match = _OPERATOR.search(symbol)
    if match:
        return f"aten::{match[1]}"
    function = _FUNCTION.search(symbol)
    return function[1] if function else None

"""Rules for which torch calls can make the CPU wait, from their arguments.

A rule gets the tensor, the positional and the keyword arguments. It looks at the devices of
tensors, never at their values, and must be fast: it runs at every call. It does not check for
pinned memory, which takes longer than a mark: any copy between host and device counts.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Rule = Callable[[Any, tuple[Any, ...], dict[str, Any]], bool]

_BYTES = ("torch.bool", "torch.uint8")


def on_gpu(tensor: Any, _args: Any, _kwargs: Any) -> bool:
    """Whether the tensor is on the GPU."""
    return getattr(tensor, "is_cuda", False) is True


def moves(tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """`to`: whether it copies between host and device."""
    argument = args[0] if args else kwargs.get("device", kwargs.get("other"))
    target = _device_type(argument)
    return target is not None and (target == "cuda") != tensor.is_cuda


def _device_type(given: Any) -> str | None:
    """Device type named by an argument of `to`; None if it names a dtype."""
    if isinstance(given, str):
        return given.partition(":")[0]
    if isinstance(given, int):
        return "cuda"
    device = getattr(given, "device", given)
    kind = getattr(device, "type", None)
    return kind if isinstance(kind, str) else None


def anywhere(_tensor: Any, _args: Any, _kwargs: Any) -> bool:
    """Always True: the call may wait for a tensor on the CPU, too."""
    return True


def comes_to_gpu(tensor: Any, _args: Any, _kwargs: Any) -> bool:
    """`cuda`: whether the tensor is on the CPU."""
    return not tensor.is_cuda


def copies_across(tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """`copy_`: whether it copies between host and device."""
    source = args[0] if args else kwargs.get("src")
    return bool(getattr(source, "is_cuda", False) != tensor.is_cuda)


def assigned(tensor: Any, args: tuple[Any, ...], _kwargs: Any) -> bool:
    """`[] =`: whether the index is a mask, whose size is needed, or comes from the CPU."""
    if not tensor.is_cuda or len(args) != 2:
        return False
    return getattr(args[1], "is_cuda", True) is False or _index_waits(args[0])


def _index_waits(index: Any) -> bool:
    kind = type(index)
    if kind is int or kind is slice or index is None or index is Ellipsis:
        return False
    if kind is tuple:
        return any(_index_waits(each) for each in index)
    if not hasattr(index, "is_cuda"):
        # A list or a numpy array becomes a CPU tensor.
        return hasattr(index, "__len__")
    return not index.is_cuda or index.dim() == 0 or str(index.dtype) in _BYTES


def repeats(tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """`repeat_interleave`: whether the output size is a sum over repeats on the GPU."""
    counts = args[0] if args else kwargs.get("repeats", tensor)
    return kwargs.get("output_size") is None and on_gpu(counts, (), {})


def condition_alone(tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """`where`: whether it has one argument, which makes it `nonzero`, on the GPU."""
    return not args and len(kwargs) <= 1 and on_gpu(kwargs.get("condition", tensor), (), {})


def made_on_gpu(data: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """`tensor`, `as_tensor`: whether it copies data to the GPU or reads a list of GPU scalars."""
    if isinstance(data, (list, tuple)) and data and on_gpu(data[0], (), {}):
        return True
    device = kwargs.get("device", args[1] if len(args) > 1 else None)
    return _device_type(device) == "cuda" and not on_gpu(data, (), {})


_OF_BOTH = "nonzero argwhere masked_select bincount histc equal allclose is_nonzero"
_ON_GPU = "item tolist numpy cpu to_sparse __repr__ __format__ __contains__"
_AS_NUMBER = "__bool__ __int__ __float__ __index__ __complex__"
METHODS: dict[str, Rule] = {
    **dict.fromkeys(f"{_ON_GPU} {_AS_NUMBER} {_OF_BOTH}".split(), on_gpu),
    "to": moves,
    "cuda": comes_to_gpu,
    "pin_memory": anywhere,
    "copy_": copies_across,
    # Not __getitem__: with one written in Python, C code takes every tensor for a sequence, and
    # torch.tensor([x[0], x[1]]) fails. A wait in x[mask] is known from the call chain.
    "__setitem__": assigned,
    "repeat_interleave": repeats,
}
FUNCTIONS: dict[str, Rule] = {
    **dict.fromkeys(_OF_BOTH.split(), on_gpu),
    # torch.jit compiles torch.unique and torch.unique_consecutive, which call these.
    "_unique2": on_gpu,
    "_VF.unique_dim": on_gpu,
    "_VF.unique_consecutive": on_gpu,
    "repeat_interleave": repeats,
    "where": condition_alone,
    "tensor": made_on_gpu,
    "as_tensor": made_on_gpu,
}
CALLED = {"_unique2": "unique", "unique_dim": "unique"}

"""Transfers between GPUs: collectives of NCCL and the like, and copies between GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from traceview import groups
from traceview.facts.collectives.messages import SEND_RECEIVE, messages
from traceview.facts.operations.kernel_classes import communication_operations
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.ranges import ranges, selection
from traceview.facts.steps.warm_up import operations_in_warm_up
from traceview.intervals import Timed
from traceview.records import record
from traceview.tables import NULL, Array, Integers, Mask, RowNumbers, Texts, object_array
from traceview.trace import Trace, fact

PEER_COPY = "peer-copy"
# ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclKernel_SendRecv, multimem_one_shot_all_reduce_kernel.
_KINDS = (
    ("all-reduce", r"all_?reduce|cross_device_reduce"),
    ("reduce-scatter", r"reduce_?scatter"),
    ("all-gather", r"all_?gather"),
    ("all-to-all", r"all_?to_?all|dispatch|combine"),
    ("send-receive", r"send_?recv|\bsend\b|\brecv\b|p2p"),
    ("broadcast", r"broad_?cast"),
    ("gather", r"gather"),
    ("scatter", r"scatter"),
    ("reduce", r"reduce"),
    ("barrier", r"barrier"),
)
_RULES = tuple((kind, re.compile(rule, re.IGNORECASE)) for kind, rule in _KINDS)
# torch names the collective in a range around its launch: nccl:all_to_all.
_TORCH_RANGE = re.compile(r"(?:^|/)nccl:(\w+)")
# RCCL's kernels run any kind of collective.
_ANY_KIND = re.compile(r"(nccl|rccl)\w*Kernel_Generic", re.IGNORECASE)


@record
class Transfers(Timed):
    """The selected transfers, one row per transfer, in order of start.

    `operation` is the row in operations, `device` and `stream` are as there, `kind` an index into
    `kinds`. `bytes` and `bus_bytes` are −1 where unknown. `is_collective` is False for copies.
    `communicator` is NCCL's number, NULL where unknown, and `ranks` the size of that communicator,
    0 where unknown. `sends` and `receives` are the directions of messages, `peer` the rank at their
    other end, −1 where there is no single one. `steady` is False for transfers of warm-up.
    """

    operation: RowNumbers
    device: Array
    stream: RowNumbers
    start_ns: Integers
    end_ns: Integers
    kind: Integers
    kinds: tuple[str, ...]
    bytes: Integers
    bus_bytes: Integers
    communicator: Integers
    ranks: Integers
    sends: Mask
    receives: Mask
    peer: Integers
    is_collective: Mask
    steady: Mask

    def __len__(self) -> int:
        return len(self.operation)


@fact
def transfers(trace: Trace) -> Transfers:
    """The selected transfers between GPUs."""
    ops = operations(trace)
    rows = np.flatnonzero(communication_operations(trace) & selection.selected_operations(trace))
    is_kernel = ops.kind[rows] == Kind.KERNEL
    kernels = rows[is_kernel]
    short_names = trace.recorded("kernels").texts("short_name").take(ops.row[kernels])
    tree = ranges.range_tree(trace)
    path = ranges.attributed_operations(trace).path(tree)[kernels]
    around = tree.patterns.texts(tree.pattern_of_paths(path))
    # By the kernel's name, else by torch's range around its launch, else by the NCCL calls.
    by_name, of_range = _of_texts(short_names, kind_of_kernel), _of_texts(around, _kind_of_range)
    named = np.where((by_name == SEND_RECEIVE) & (of_range != ""), of_range, by_name)
    called = messages(trace, kernels, named)
    open_kind = (named == SEND_RECEIVE) | short_names.matching(_ANY_KIND.match)
    every_kind = object_array([PEER_COPY] * len(rows))
    every_kind[is_kernel] = np.where(open_kind & (called.kind != ""), called.kind, named)
    kinds = Texts.of(every_kind)
    copied = trace.recorded("copies")["bytes"][ops.row[rows[~is_kernel]]]
    return Transfers(
        operation=rows.astype(np.int32),
        device=ops.device[rows],
        stream=ops.stream[rows],
        start_ns=ops.start_ns[rows],
        end_ns=ops.end_ns[rows],
        kind=kinds.codes.astype(np.int64),
        kinds=tuple(map(str, kinds.values)),
        bytes=_either(is_kernel, called.bytes, copied),
        bus_bytes=_either(is_kernel, called.bus_bytes, copied),
        communicator=_either(is_kernel, called.communicator, NULL),
        ranks=_either(is_kernel, called.ranks, 0),
        sends=_either(is_kernel, called.sends, 0) > 0,
        receives=_either(is_kernel, called.receives, 0) > 0,
        peer=_either(is_kernel, called.peer, -1),
        is_collective=is_kernel,
        steady=~operations_in_warm_up(trace)[rows],
    )


def _either(is_kernel: Mask, of_kernels: Array, of_copies: Integers | int) -> Integers:
    result = np.zeros(len(is_kernel), np.int64)
    result[is_kernel], result[~is_kernel] = of_kernels, of_copies
    return result


def _of_texts(texts: Texts, kind_of: Callable[[str], str]) -> Array:
    """The kind of each text, computed once per distinct text; "" for an absent text."""
    alike = groups.group(texts.codes)
    distinct = texts.take(alike.first).decode()
    kinds = object_array(["" if text is None else kind_of(text) for text in distinct])
    return kinds[alike.ids]


def kind_of_kernel(name: str) -> str:
    """The collective that a kernel of that name runs; the name itself where it is unknown."""
    return _known_kind(name) or name


def _known_kind(name: str) -> str:
    return next((kind for kind, rule in _RULES if rule.search(name)), "")


def _kind_of_range(pattern: str) -> str:
    """The collective that torch names; "" for a group of messages (`nccl:coalesced`)."""
    names = _TORCH_RANGE.findall(pattern)
    return _known_kind(names[-1]) if names else ""

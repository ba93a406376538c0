"""What a library's kernel says of the call that launches it, where it takes much of the time.

A library's kernel is fast for what it does: what wins time is another call. Its name and its grids
tell what was called, and for what it is a long way round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import Integers, RowNumbers
from traceview.base.units import Value
from traceview.base.vocabulary.kernel_words import KernelOwner
from traceview.traces.facts import operations, savings
from traceview.traces.facts.idle.stack_sites import function_name, stack_sites, unwound_samples
from traceview.traces.facts.kernel_classes import (
    as_edg,
    communication_kernels,
    kernel_labels,
    kernel_owners,
)
from traceview.traces.facts.memory import levels
from traceview.traces.facts.work.peaks import peaks
from traceview.traces.rules import (
    FindingRule,
    TimeClaim,
    costliest_gpu,
    kernel_claim,
    named,
    steady,
    steady_ns,
)
from traceview.traces.trace import Trace

_LEAST_PCT, _MOST_OF_TIME = 10.0, 0.5
"""As of the program's own kernels."""


@record
class Misuse:
    """What the launches `rows` show of their call: `values`.

    `less_ns` is what they take less at least, None where nothing tells. `sure` says whether another
    way is known to be faster, `gone` whether that is without these launches.
    """

    rows: RowNumbers
    values: Mapping[str, Value] = field(default_factory=dict)
    less_ns: Integers | None = None
    sure: bool = True
    gone: bool = False


# Products of a batch, a block each.
#
# cuBLAS puts the products of a batch along z, and starts anew beyond the limit of a grid there. A
# batch of so many, each in a block of a warp or two, is of vectors of a few elements. On an H200
# 2,097,152 dot products of 3 elements took 1.95 ms, 33 launches, for 25 MB.

_MOST_Z = 65_535
_FEW_THREADS = 64
_LEAST_BYTES = 6
"""Of a product: two numbers and its result, of 16 bits each."""
_PASSES = 3
"""A product writes what a sum then reads: together with the operands, three times their bytes."""


def _tiny_products(trace: Trace, rows: RowNumbers) -> Misuse | None:
    kernels, ops = trace.recorded("kernels"), operations.kernel_operations(trace)
    threads = np.prod([kernels[f"block_{axis}"][rows].astype(np.int64) for axis in "xyz"], axis=0)
    alone = (kernels["grid_x"][rows] == 1) & (kernels["grid_y"][rows] == 1)
    rows = rows[alone & (threads <= _FEW_THREADS)]
    products, own_ns = kernels["grid_z"][rows].astype(np.int64), kernels.duration_ns[rows]
    if own_ns[products == _MOST_Z].sum() <= _MOST_OF_TIME * own_ns.sum():
        return None
    # Launches of one call follow one another on a stream; the last of them holds the rest.
    by_stream = operations.operations_by_stream(trace)
    place = np.empty(len(by_stream), np.int64)
    place[by_stream] = np.arange(len(by_stream))
    at = place[ops[rows]]
    order = np.argsort(at, kind="stable")
    goes_on = (np.diff(at[order]) == 1) & (products[order][:-1] == _MOST_Z)
    call = groups.group(np.append(0, np.cumsum(~goes_on)))
    launches = int(np.median(groups.count(call)))
    if launches == 1:
        return None
    call_ns = round(float(np.median(groups.sums(call, own_ns[order]))))
    values: dict[str, Value] = {
        "launches": launches,
        "products": int(np.median(groups.sums(call, products[order]))),
        "call_ns": call_ns,
    }
    device = int(kernels["device"][rows[0]])
    level, rate = levels(trace).get(device), peaks(trace)[device].get("bandwidth")
    of_vectors = _OF_VECTORS.search(str(kernels.texts("name")[int(rows[0])]))
    if not of_vectors or level is None or rate is None:
        return Misuse(rows, values, sure=False)
    # A vector's product reads each element once, and all that it reads is in memory.
    peak_bytes = int(level.bytes.max(initial=0))
    if level.before_bytes or peak_bytes < _LEAST_BYTES * int(values["products"] or 0):
        # The recording does not have all of the memory.
        return Misuse(rows, values, sure=False)
    read_ns = round(peak_bytes / rate.value * 1e9)
    part = 1 - _PASSES * read_ns / max(call_ns, 1)
    if not peak_bytes or part <= 0:
        return Misuse(rows, values, sure=False)
    values |= {"peak_bytes": peak_bytes, "read_ns": read_ns}
    return Misuse(rows, values, less_ns=np.floor(own_ns * part).astype(np.int64))


_OF_VECTORS = re.compile(r"gemv|\bdot_kernel")

# Algorithms over keys that no array holds.

_ARGUMENT = re.compile(r"(?:[\w:]+::)?(\w*[iI]terator\w*)<|[\w:]+ ?\*")
_STORED = re.compile(r"\*|normal_iterator|\bpointer<|device_ptr")


def _computed_keys(trace: Trace, rows: RowNumbers) -> Misuse | None:
    """Keys that are computed from a counter, as the name of the algorithm's iterators tells."""
    rows = _longest_of(trace, rows)
    name = _name_of(trace, rows)
    begin = re.search(_BY_KEY, name)
    keys = _ARGUMENT.search(name, begin.end()) if begin else None
    if keys is None or not keys[1]:
        return None
    depth, end = 1, keys.end()
    while depth and end < len(name):
        depth += (name[end] == "<") - (name[end] == ">")
        end += 1
    whole = keys[0] + re.sub(r"\[lambda\(.*?\)", "", name[keys.end() : end])
    generated = re.search(r"[cC]ounting_?[iI]", whole) and not _STORED.search(whole)
    return Misuse(rows) if generated else None


_BY_KEY = r"\bReduceByKeyAgent\b|\bDeviceReduceByKeyKernel\b"
_OFTEN = 3


def _seeds(_: Trace, rows: RowNumbers) -> Misuse | None:
    """States of a generator that are computed again and again."""
    return Misuse(rows, gone=True) if len(rows) >= _OFTEN else None


@record
class Use:
    """A call that launches kernels of these `names`, and what to do if they show a misuse of it.

    `name` is what it is called where the label of its kernel does not say so.
    """

    names: str
    shows: Callable[[Trace, RowNumbers], Misuse | None]
    message: str
    remedy: str
    name: str = ""


USES = (
    Use(
        r"gemv|gemm|\bdot_kernel",
        _tiny_products,
        " {launches} launches in a row are one call of {products} products, a block each: it takes "
        "{call_ns}[, and reading all memory in use, {peak_bytes}, {read_ns}].",
        "Where these are vectors of a few elements, multiply and add elementwise, such as "
        "(a * b).sum(-1), instead of an einsum, bmm or other batched product: that only passes "
        "over memory.",
    ),
    Use(
        _BY_KEY,
        _computed_keys,
        " No array holds its keys: they are computed from a counter.",
        "Where that tells which values belong to a result, let one thread per result add them up "
        "(thrust::transform, or a kernel), or reduce segments of fixed size: neither needs keys, "
        "and blocks then do not wait for the sums before theirs.",
        name="reduce_by_key of Thrust or CUB",
    ),
    Use(
        r"\bgenerate_seed_\w+",
        _seeds,
        " It computes the states of a generator of cuRAND anew each time.",
        "Make the generator once, and set neither its seed nor its offset in the loop: it then "
        "goes on with its next numbers. Where each pass needs the same numbers, keep them.",
    ),
)


def _uses(trace: Trace) -> Iterator[TimeClaim]:
    of_library = kernel_owners(trace) == KernelOwner.LIBRARY
    for use in USES:
        chosen = steady(trace, named(trace, use.names) & of_library)
        for device, rows in costliest_gpu(trace, chosen):
            shown = use.shows(trace, rows)
            if shown and _pct(trace, device, shown.rows) >= _LEAST_PCT:
                yield _claim(trace, device, shown, use)


def _claim(trace: Trace, device: int, shown: Misuse, use: Use) -> TimeClaim:
    rows, less_ns = shown.rows, shown.less_ns
    effect = savings.GONE if less_ns is None else savings.faster(less_ns)
    claim = _placed(trace, kernel_claim(trace, device, rows, shown.values, effect), rows)
    values = {**claim.values, "kernel": use.name or claim.values["kernel"]}
    said = (*claim.said, use.message)
    claim = replace(claim, values=values, said=said, remedy=use.remedy)
    if less_ns is not None or shown.gone:
        return replace(claim, saving="at-most" if shown.gone else "at-least")
    return replace(_at_most(claim), severity="medium" if shown.sure and _is_most(claim) else "info")


def _longest(trace: Trace) -> Iterator[TimeClaim]:
    """A library's kernel that takes most of the time, with the place that launches it."""
    of_library = kernel_owners(trace) == KernelOwner.LIBRARY
    # `communication` tells what those of NCCL wait for.
    of_library &= ~communication_kernels(trace)
    for device, rows in costliest_gpu(trace, steady(trace, of_library)):
        own = _longest_of(trace, rows)
        claim = _placed(trace, kernel_claim(trace, device, own), own)
        if _is_most(claim) and claim.said:
            yield replace(_at_most(claim), severity="info")


def _is_most(claim: TimeClaim) -> bool:
    return int(claim.figures["total_ns"] or 0) > _MOST_OF_TIME * claim.span_ns


def _at_most(claim: TimeClaim) -> TimeClaim:
    """The claim where nothing tells what another call would take: no more than all is saved."""
    saved_ns = min(claim.saved_ns, int(claim.figures["total_ns"] or 0))
    values = {**claim.values, "saved_ns": saved_ns}
    return replace(
        claim, values=values, saved_ns=saved_ns, lost_ns=None, edit=None, saving="at-most"
    )


def _pct(trace: Trace, device: int, rows: RowNumbers) -> float:
    total_ns = int(trace.recorded("kernels").duration_ns[rows].sum())
    return 100 * total_ns / max(int(steady_ns(trace)[device]), 1)


def _longest_of(trace: Trace, rows: RowNumbers) -> RowNumbers:
    """Those of the name that takes most time."""
    kernels = trace.recorded("kernels")
    by_name = groups.group(kernels.texts("name").codes[rows])
    return rows[by_name.ids == np.argmax(groups.sums(by_name, kernels.duration_ns[rows]))]


def _name_of(trace: Trace, rows: RowNumbers) -> str:
    return as_edg(str(trace.recorded("kernels").texts("name")[int(rows[0])])[:_LONGEST])


_LONGEST = 4000
_OF_LAMBDA = re.compile(r"((?:[\w~]+(?:<[^<>]*>)?::)*[\w~]+)\([^()]*\)(?: const)?::\[lambda")
_IN_LIBRARY = re.compile(r"(?:thrust|cub|cuda|std|at|c10)::")
_LEAST_SAMPLES, _LEAST_FRACTION = 5, 2 / 3


def _placed(trace: Trace, claim: TimeClaim, rows: RowNumbers) -> TimeClaim:
    """The claim with the kernel's label, and the function of native code that calls it."""
    values = {**claim.values, "kernel": kernel_labels(trace)[int(rows[0])]}
    function = None if claim.subject.file else _calling_function(trace, rows)
    if function is None:
        return replace(claim, values=values)
    said = (*claim.said, " It is called in {called_in}.")
    return replace(claim, values={**values, "called_in": function}, said=said)


def _calling_function(trace: Trace, rows: RowNumbers) -> str | None:
    """The function whose lambda is in the name, else that of most samples behind the launches."""
    lambdas = _OF_LAMBDA.findall(_name_of(trace, rows))
    named_in = [each for each in lambdas if not _IN_LIBRARY.match(each)]
    if named_in:
        return max(named_in, key=named_in.count)
    samples, calls = unwound_samples(trace), trace.recorded("api_calls")
    every, its = operations.operations(trace), operations.kernel_operations(trace)[rows]
    own = groups.marked(every.call[its[every.launched[its]]], len(calls))
    launching = np.flatnonzero(groups.marked(every.call[every.launched], len(calls)))
    functions: list[str] = []
    sites = stack_sites(trace)
    for thread in groups.different(calls["thread"][launching]).tolist():
        of_thread = launching[calls["thread"][launching] == thread]
        of_thread = of_thread[np.argsort(calls["start_ns"][of_thread], kind="stable")]
        at = samples.thread == thread
        last = np.searchsorted(calls["start_ns"][of_thread], samples.time_ns[at], side="right") - 1
        behind = (last >= 0) & own[of_thread[np.maximum(last, 0)]]
        texts = (sites.function[int(site)] for site in samples.site[at][behind].tolist())
        functions += [function_name(str(each)) for each in texts if each]
    most = max(set(functions), key=functions.count, default=None)
    least = max(_LEAST_SAMPLES, _LEAST_FRACTION * len(functions))
    return most if most and functions.count(most) >= least else None


MISUSED = FindingRule(
    _uses, "{kernel} takes {total_ns} ({total_pct} of kernel time after warm-up)."
)
LONGEST = FindingRule(
    _longest,
    "{kernel} takes {total_ns} ({total_pct} of kernel time after warm-up), the most of any kernel.",
    "Look at that call: a library's kernel takes less time where it is called less often, on less, "
    "or for another algorithm.",
)

"""Kernels by name: the class of each, its label, and the framework whose library launched it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from traceview.base import groups
from traceview.base.tables import Mask, Texts
from traceview.base.vocabulary.frameworks import FRAMEWORKS, NO_FRAMEWORK, Framework
from traceview.base.vocabulary.kernel_words import CUFFT, KernelClass, KernelOwner
from traceview.base.vocabulary.libraries import classify, owner_of, readable
from traceview.traces.facts.operations import Kind, kernel_operations, operations, shares_memory
from traceview.traces.trace import Trace, fact, fact_without_ranges
from traceview.traces.trace.schema import TORCH_PROFILER

__all__ = ["CUFFT", "KernelClass", "KernelOwner", "classify", "owner_of"]


@fact_without_ranges
def kernel_classes(trace: Trace) -> npt.NDArray[np.uint8]:
    """The class of each row of kernels, a `KernelClass`; each distinct name is classified once."""
    return classes_of(trace.recorded("kernels").texts("name"))


def classes_of(names: Texts) -> npt.NDArray[np.uint8]:
    """The class of each of these kernel names, as a `KernelClass`."""
    return _by_name(names, classify, KernelClass.OTHER)


def _by_name(
    names: Texts, rule: Callable[[str], int], absent: KernelClass | KernelOwner
) -> npt.NDArray[np.uint8]:
    # The values may be all texts of a trace: only those of kernels are classified.
    by_code = np.full(len(names.values) + 1, absent, np.uint8)
    for code in groups.different(names.codes[names.codes >= 0]).tolist():
        by_code[code] = rule(str(names.values[code]))
    return by_code[names.codes]


@fact_without_ranges
def communication_kernels(trace: Trace) -> Mask:
    """True for the rows of kernels that exchange data between GPUs (NCCL, NVSHMEM …)."""
    return kernel_classes(trace) == KernelClass.COMMUNICATION


@fact_without_ranges
def communication_operations(trace: Trace) -> Mask:
    """True for the operations that are communication kernels or copies between GPUs."""
    ops = operations(trace)
    result = np.zeros(len(ops), bool)
    result[kernel_operations(trace)[communication_kernels(trace)]] = True
    copies = np.flatnonzero(ops.kind == Kind.COPY)
    directions = trace.recorded("copies").texts("direction")
    result[copies] = directions.isin(["P2P"])[ops.row[copies]]
    return result


# Who wrote each kernel of a trace: the program, a compiler or a library, decided by its name.
#
# A program chooses the blocks of its own kernels. Those of a compiler or a library change only
# with the shapes, types and options of the operation that launches them.


@fact_without_ranges
def kernel_owners(trace: Trace) -> npt.NDArray[np.uint8]:
    """The owner of each row of kernels, a `KernelOwner`; each distinct name is classified once."""
    return _by_name(trace.recorded("kernels").texts("name"), owner_of, KernelOwner.LIBRARY)


_LONGEST = 400


@fact
def terms(trace: Trace) -> Framework:
    """The framework of the recording; `NO_FRAMEWORK` if no name shows one, as in a C++ program."""
    for table, shows in (("kernels", Framework.launches), ("ranges", Framework.opens)):
        names = trace.recorded(table).texts("name")
        codes = groups.different(names.codes[names.codes >= 0])
        texts = [str(names.values[code])[:_LONGEST] for code in codes.tolist()]
        for each in FRAMEWORKS:
            if any(shows(each, text) for text in texts):
                return _on_ground(trace, each)
    # A recording of torch.profiler may hold no operators.
    return _on_ground(trace, FRAMEWORKS[0] if trace.recorder == TORCH_PROFILER else NO_FRAMEWORK)


def _on_ground(trace: Trace, used: Framework) -> Framework:
    """The words of a framework for GPUs that share the CPU's memory, where these ran."""
    if not shares_memory(trace):
        return used
    instead = f"Use {used.one_memory}, which needs no upload here, or upload early"
    return replace(used, early_uploads=instead)


def framework(trace: Trace) -> str:
    """The name of the framework of the recording; empty if no name shows one."""
    return terms(trace).name


# C++ names as the two demanglers write them: that of nsys (EDG), and that of torch.profiler
# (GNU).
#
# EDG void at::native::<unnamed>::f<(int)4, (bool)1, [lambda(float) (instance 2)], char *> GNU
# void at::native::(anonymous namespace)::f<4, true, {lambda(float)#2}, char*>

_LAMBDA = re.compile(r"\{lambda\((.*?)\)#(\d+)\}")
_NUMBER = re.compile(r"(?<=[<,])( ?)(-?\d+)(u?l?)(?=[,>])")
_FLAG = re.compile(r"(?<=[<,])( ?)(true|false)(?=[,>])")
_TYPES = {"": "int", "u": "unsigned int", "l": "long", "ul": "unsigned long"}


def as_edg(name: str) -> str:
    """The name with unnamed namespaces, lambdas and constants as nsys writes them."""
    if "<" not in name and "(" not in name:
        return name
    name = name.replace("(anonymous namespace)", "<unnamed>")
    name = _LAMBDA.sub(r"[lambda(\1) (instance \2)]", name)
    name = _NUMBER.sub(lambda found: f"{found[1]}({_TYPES[found[3]]}){found[2]}", name)
    return _FLAG.sub(lambda found: f"{found[1]}(bool){int(found[2] == 'true')}", name)


# Labels of kernels: what a library's kernel computes, or the base name of any other kernel.
#
# `vocabulary.libraries` puts the names of known libraries into words. For other wrappers, such as
# `device_kernel`, the label adds the first meaningful template argument.

MOST = 80
"""The most characters that are added to a base name."""
_MOST_CHARACTERS = 4000
_WRAPPER = re.compile(
    r"(?:.*::)?(?:[Kk]ernel2?|device_kernel|_kernel_agent|\w*elementwise\w*kernel\w*|reduce_kernel"
    r"|multi_tensor_apply_kernel)"
)
# Numba puts the types of the arguments and the options of its compiler there.
_ABI_TAG = re.compile(r"\[abi:[^\[\]]*\]")
# A word before :: is a scope, not a name.
_WORD = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*::)")
_SAYS_NOTHING = re.compile(
    r"void|bool|char|short|int|long|unsigned|float|double|const|signed|T\d+|lambda|instance|operator"
    r"|unnamed|anonymous|array|Array|BFloat16|Half|Float8_\w+|complex|half_t|bfloat16_t|tfloat32_t"
    r"|gpu_kernel_impl\w*|gpu_index_kernel|[AB]?UnaryFunctor|BinaryFunctor|ReduceOp|func_wrapper_t"
    r"|\w*ListMetadata|OpaqueType|enable_\w+|type"
)
_TOKEN = re.compile(r"[^\W_]+(?!\w*\s*::)")
_LONG_WORD = re.compile(r"\b[A-Za-z_]\w{4,29}\b(?!\s*::)")
_MOST_TOKENS = 3


@fact_without_ranges
def kernel_labels(trace: Trace) -> Texts:
    """The label of each row of kernels; kernels of different names have different labels."""
    kernels = trace.recorded("kernels")
    names, shorts = kernels.texts("name"), kernels.texts("short_name")
    first = groups.group(names.codes).first
    first = first[names.codes[first] >= 0]
    texts = labels(
        [str(text)[:_MOST_CHARACTERS] for text in names.take(first).decode()],
        [(text or "")[:_MOST_CHARACTERS] for text in shorts.take(first).decode()],
    )
    # The codes are those of the names, so only the values of kernel names are filled in.
    values = np.full(len(names.values), "", object)
    values[names.codes[first]] = texts
    return Texts(names.codes, values)


def labels(names: Sequence[str], shorts: Sequence[str]) -> list[str]:
    """Distinct labels of kernels, from their full names, all distinct, and their base names."""
    names = [as_edg(name) for name in names]
    shorts = [_ABI_TAG.sub("", short) for short in shorts]
    bases = [readable(name) or short for name, short in zip(names, shorts, strict=True)]
    plain = [
        _of_wrapper(name, short) if base == short else base
        for base, name, short in zip(bases, names, shorts, strict=True)
    ]
    result, half = [], MOST // 2
    # The labels, equal ones extended by the first token, such as a number, that differs.
    labels = _with_words(plain, names)
    distinct = list(labels)
    tokens: dict[int, list[str]] = {}
    for _ in range(_MOST_TOKENS):
        alike = defaultdict(list)
        for place, text in enumerate(distinct):
            alike[text].append(place)
        for same in (same for same in alike.values() if len(same) > 1):
            for place in same:
                tokens.setdefault(place, _TOKEN.findall(names[place]))
            columns = zip_longest(*(tokens[place] for place in same), fillvalue="")
            parting = next((column for column in columns if len(set(column)) > 1), ())
            for place, token in zip(same, parting, strict=False):
                distinct[place] = f"{distinct[place]} {token}".rstrip()
    for text, base in zip(distinct, bases, strict=True):
        added = text[len(base) :]
        cut = f"{base}{added[: half - 1]}…{added[-half:]}"
        result.append(text if len(added) <= MOST else cut)
    return result


def _of_wrapper(name: str, short: str) -> str:
    """The base name; for a wrapper, with the first meaningful word of its template arguments."""
    if not _WRAPPER.fullmatch(short):
        return short
    start = name.find("<", name.find(short.rpartition("::")[2]))
    words = _WORD.finditer(name, start) if start >= 0 else ()
    meaningful = (word[0] for word in words if not _SAYS_NOTHING.fullmatch(word[0]))
    return f"{short} {next(meaningful, '')}".rstrip()


def _with_words(plain: Sequence[str], names: Sequence[str]) -> list[str]:
    """The labels, equal ones extended by the longest word that only one of their kernels has."""
    alike = Counter(plain)
    words = [
        _LONG_WORD.findall(name) if alike[text] > 1 else ()
        for text, name in zip(plain, names, strict=True)
    ]
    shared = Counter(
        (text, word) for text, of in zip(plain, words, strict=True) for word in set(of)
    )
    result = []
    for text, of_name in zip(plain, words, strict=True):
        unshared = [word for word in of_name if shared[text, word] == 1 and word not in text]
        result.append(f"{text} {max(unshared, key=len)}" if unshared else text)
    return result

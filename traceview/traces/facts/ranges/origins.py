"""Who opened a range, and the forms of names: those of one form differ in their numbers alone.

Only ranges of the program, of profilers that mark steps, and those that traceview adds can be
steps. Ranges of libraries and operators repeat as well, but nobody counts time in them: they label
work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from traceview.base import groups, intervals
from traceview.base.compiled import library
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import NULL, Array, Integers, Mask, packed_texts, picked
from traceview.base.vocabulary import activities
from traceview.traces.trace import Trace, fact
from traceview.traces.trace.schema import OPERATORS

# Forms of texts: texts that differ in their numbers alone share a form.
#
# Digits between letters belong to a word, such as h2d or f8e4m3fn, and are not numbers. A program
# that numbers its ranges has as many names as ranges. What a name means rarely depends on its
# numbers, so it is looked up once per form.

# Texts whose forms are made at once: they stay in the CPU cache.
_TEXTS_EACH = 1 << 14
MOST_DIGITS = 15


@record
class JoinedTexts:
    """Texts that are searched all at once."""

    texts: Sequence[str]

    def meeting(self, rule: Callable[[str], object], near: re.Pattern[str]) -> Mask:
        """True for the texts that meet a rule.

        Only texts in which `near` occurs are asked, as names may differ in more than numbers and
        most meet no rule. It is searched in all texts at once, each of them after a line break,
        and should run on to the end of the line, so that each text has few matches.
        """
        places = np.fromiter((each.start() for each in near.finditer(self.lines)), np.int64)
        result, asked = np.zeros(len(self.texts), bool), groups.different(self._text_at(places))
        result[asked] = [bool(rule(self.texts[text])) for text in asked.tolist()]
        return result

    @cached_property
    def lines(self) -> str:
        return "\n".join(("", *self.texts))

    def _text_at(self, places: Integers) -> Integers:
        return np.searchsorted(self._line_breaks, places, side="right") - 1

    @cached_property
    def _line_breaks(self) -> Integers:
        """Where in `lines` each text has its line break."""
        sizes = np.fromiter(map(len, self.texts), np.int64, len(self.texts)) + 1
        return np.cumsum(sizes) - sizes


@record
class TextForms:
    """`form` is the form of each of `texts`, and `first` the first text of each form."""

    texts: packed_texts.PackedTexts
    form: Integers
    first: Integers

    @cached_property
    def examples(self) -> list[str]:
        """A text of each form."""
        return self._examples.every.tolist()

    @cached_property
    def _examples(self) -> packed_texts.PackedTexts:
        return self.texts.picked(self.first)

    def matching(self, pattern: re.Pattern[str]) -> Mask:
        """Whether each text begins with the pattern, which must not depend on values of numbers.

        A final entry, False, serves the code −1 of an absent text.
        """
        begins = re.compile(f"\n(?={pattern.pattern})", pattern.flags | re.MULTILINE)
        return self.meeting(pattern.match, begins)

    def meeting(self, rule: Callable[[str], object], near: re.Pattern[str]) -> Mask:
        """As `matching`, for texts that meet a rule; see `JoinedTexts.meeting` for `near`."""
        return np.append(self._joined.meeting(rule, near)[self.form], False)

    @cached_property
    def _joined(self) -> JoinedTexts:
        return JoinedTexts(self.examples)

    def last_numbers(self) -> Integers:
        """The last number of each text, −1 if there is none or it has over MOST_DIGITS digits."""
        result = np.full(len(self.texts), -1, np.int64)
        begin, digits = _last_digits(self._examples)
        digits[digits > MOST_DIGITS] = 0
        texts, content = len(self.form), self.texts.content
        given = (content, self.texts.starts, self.form, texts, begin, digits, result)
        library.call("traceview_read_numbers", *given)
        return result


def _last_digits(texts: packed_texts.PackedTexts) -> tuple[Integers, Integers]:
    """Where the last number of each text begins, and its count of digits, 0 without a number."""
    is_digit = texts.content - ord("0") < 10
    bounds = np.flatnonzero(np.diff(is_digit, prepend=False))
    # A NUL follows each text, so that every run of digits ends.
    begins, ends = bounds[::2], bounds[1::2]
    place = np.searchsorted(begins, texts.starts + texts.sizes) - 1
    begin, end = (np.append(each, -1)[place] for each in (begins, ends))
    digits = np.where(begin >= texts.starts, end - begin, 0)
    return begin - texts.starts, digits


def forms_of(texts: packed_texts.PackedTexts) -> TextForms:
    """The forms of texts, in order of appearance. Texts of one form are equally long."""
    numbers = packed_texts.TextNumbers()
    try:
        parts = [numbers.of(part) for part in _zeroed_parts(texts)]
    except packed_texts.CollidingTextsError:
        index: dict[bytes, int] = {}
        every = (raw for part in _zeroed_parts(texts) for raw in part)
        parts = [np.array([index.setdefault(raw, len(index)) for raw in every])]
    form = np.concatenate([np.empty(0, np.int64), *parts])
    first = np.zeros(int(form.max(initial=-1)) + 1, np.int64)
    first[form[::-1]] = np.arange(len(form) - 1, -1, -1)
    return TextForms(texts, form, first)


def _zeroed_parts(texts: packed_texts.PackedTexts) -> Iterator[packed_texts.PackedTexts]:
    """Yield the texts in batches, with the digits of their numbers replaced by zeroes."""
    for begin in range(0, len(texts), _TEXTS_EACH):
        part = texts.slice(slice(begin, begin + _TEXTS_EACH))
        # The NUL between two texts keeps the digits of one from the letters of the next.
        first, end = int(part.starts[0]), int(part.starts[-1] + part.sizes[-1])
        # The bytes, with the digits of numbers replaced by zeroes.
        result = texts.content[first:end].copy()
        library.call("traceview_zero_numbers", result, len(result))
        yield packed_texts.PackedTexts(result, part.starts - first, part.sizes)


StepsSource = Literal["user-ranges", "added-ranges", "profiler-steps", "repetition", "none"]

ADDED_DOMAIN = "traceview"
"""Domain of the ranges that `traceview record` adds to the program."""
INFERRED_DOMAIN = "traceview: repetition"
"""Domain of steps that were not recorded: passes of the launch sequence."""

_MPI = re.compile(r"P?MPI_[A-Z]")
# Domains that NVIDIA's and Google's libraries register, such as CCCL, NCCL, cuBLAS and TSL.
_LIBRARY_DOMAIN = re.compile(
    r"(?i)(cccl|cub|thrust|nccl|nvshmem|tsl|xla|tensorrt|libcudf|rmm|warp|"
    r"cu(blas|dnn|sparse|solver|fft|rand|tensor|tlass)(lt|xt|mp|mg)?)\b.*|mpi"
)
_LIBRARY_NAME = re.compile(
    r"(cub|thrust|cuda)::|Xla(Module|Pass|Launch)|TSL:|nccl[A-Z:]|(gloo|ucc|mpi):|cublas[A-Z]"
    rf"|{_MPI.pattern}"
)
# Operators of torch: emit_nvtx, record_function and nsys's --pytorch options write these, PyProf
# and DLProf a dict per call of torch.
_OPERATOR_NAME = re.compile(
    r"(aten|prim|prims|c10d|c10|torchvision|torch_\w+|autograd|torch::autograd|FSDP|DDP|inductor)::"
    r"|torch\.(?!compile\b)\w+\.|Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)"
    r"|\{'(traceMarker|mod)':|record_param_comms|\w+Backward\d*$|AccumulateGrad|DistributedDataParallel\.|TorchDynamo"
)
_ARGUMENTS = re.compile(r", (op_id|seq) = \d+")
_NEAR_FOREIGN = re.compile(
    rf"\n(?={_LIBRARY_NAME.pattern}|{_OPERATOR_NAME.pattern}|.*{_ARGUMENTS.pattern})", re.MULTILINE
)
_ADDED_STEP = re.compile(r"step_\d+$")
_JAX_STEP = re.compile(r".*#step_num=[\d#]")
_PROFILER_STEP = re.compile(
    r"ProfilerStep[#*]|\[pl\]\[profile\]run_training_batch|execute_(?:[\d#]+_)?context_[\d#]"
    rf"|{_JAX_STEP.pattern}"
)
"""Markers of torch.profiler, of Lightning's profilers, of vLLM's engine and of
jax.profiler.StepTraceAnnotation, in names or patterns of names."""


@fact
def range_name_forms(trace: Trace) -> TextForms:
    """The forms of the distinct names of ranges."""
    return forms_of(packed_texts.packed(trace.recorded("ranges").texts("name")))


@fact
def program_ranges(trace: Trace) -> Mask:
    """True for the rows of `ranges` that are neither a library's nor an operator's."""
    ranges = trace.recorded("ranges")
    domains, names = ranges.texts("domain"), ranges.texts("name")
    library = domains.matching(lambda name: name == OPERATORS or _LIBRARY_DOMAIN.fullmatch(name))
    foreign = range_name_forms(trace).meeting(_is_foreign, _NEAR_FOREIGN)[names.codes]
    # The steps that a JAX program marks are in the domain of XLA.
    return ~(library | foreign) | _matching(trace, _JAX_STEP)


def added_ranges(trace: Trace) -> Mask:
    """True for the rows of `ranges` that `traceview record` added to the program."""
    return trace.recorded("ranges").texts("domain").isin([ADDED_DOMAIN])


@fact
def candidates_for_steps(trace: Trace) -> Mask:
    """True for the rows of `ranges` that may be steps.

    Of added ranges only those named as steps; where there are any, steps that a profiler marks do
    not count.
    """
    added = added_ranges(trace)
    steps = added & _matching(trace, _ADDED_STEP)
    result = program_ranges(trace) & (~added | steps)
    return result & ~profiler_steps(trace) if steps.any() else result


def calls_of_mpi(trace: Trace) -> Mask:
    """True for the rows of `ranges` that are calls of MPI."""
    ranges = trace.recorded("ranges")
    return _matching(trace, _MPI) & (ranges["end_ns"] > ranges["start_ns"])


@fact
def range_waits(trace: Trace) -> Mapping[int, Mapping[int, Intervals]]:
    """When each thread was in ranges that tell what it did: by thread and activity (ACTIVITIES).

    torch.profiler marks each batch of a DataLoader. One that is ready is no wait.
    """
    ranges = trace.recorded("ranges")
    result: dict[int, dict[int, Intervals]] = {}
    for doing, rule in _DOING.items():
        least_ns = READY_NS if doing == activities.DATA_WAIT else 1
        chosen = _matching(trace, rule) & (ranges["end_ns"] - ranges["start_ns"] >= least_ns)
        for thread in groups.different(ranges["thread"][chosen]).tolist():
            rows = np.flatnonzero(chosen & (ranges["thread"] == thread))
            result.setdefault(thread, {})[doing] = intervals.covered(ranges, rows)
    return result


READY_NS = 4_000_000
"""Receiving a batch that is ready took 2 ms where it was sampled (9.8 MB, not pinned)."""
_DOING = {
    activities.DATA_LOADING: re.compile(r"enumerate\(DataLoader\)#_Single\w+\.__next__"),
    activities.DATA_WAIT: re.compile(r"enumerate\(DataLoader\)#_Multi\w+\.__next__"),
    activities.MESSAGE: _MPI,
}


def is_profiler_step(name: str) -> bool:
    """Whether a name, or a pattern of names, is that of the steps that a profiler marks."""
    return bool(_PROFILER_STEP.match(name))


def profiler_steps(trace: Trace) -> Mask:
    """True for the rows of `ranges` that are steps which a profiler marks."""
    return _matching(trace, _PROFILER_STEP)


def only_profiler_step(trace: Trace) -> int | None:
    """The row of `ranges` of the only whole step that a profiler marked; None without one."""
    rows = np.flatnonzero(profiler_steps(trace) & (trace.recorded("ranges")["end_ns"] != NULL))
    return int(rows[0]) if len(rows) == 1 else None


def _matching(trace: Trace, rule: re.Pattern[str]) -> Mask:
    """True for the rows of `ranges` whose name matches."""
    codes = trace.recorded("ranges").texts("name").codes
    return picked(range_name_forms(trace).matching(rule), codes)


def _is_foreign(name: str) -> bool:
    return bool(_LIBRARY_NAME.match(name) or _OPERATOR_NAME.match(name) or _ARGUMENTS.search(name))


def is_library_name(name: str) -> bool:
    """Whether a range of this name was opened by a library such as NCCL or cuBLAS."""
    return bool(_LIBRARY_NAME.match(name))


def source_of(domain: str | None, name: str) -> StepsSource:
    """The source of steps whose ranges have this domain and name."""
    if domain == INFERRED_DOMAIN:
        return "repetition"
    if domain == ADDED_DOMAIN:
        return "added-ranges"
    return "profiler-steps" if is_profiler_step(name) else "user-ranges"


def library_domains(domains: Array) -> list[str]:
    """The domains in `domains` that belong to libraries."""
    return [str(name) for name in domains if name and _LIBRARY_DOMAIN.fullmatch(str(name))]

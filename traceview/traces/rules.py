"""Findings as data: a rule says the sentences, its claims the figures, the engine the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import TypedDict

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import (
    SEVERITIES,
    Clause,
    Edit,
    Evidence,
    Finding,
    LostTime,
    Saving,
    Severity,
    Subject,
    field_names,
    sentence,
    severity_of,
    share_pct,
)
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import NULL, Array, Integers, Mask, RowNumbers, picked
from traceview.base.units import Value
from traceview.base.vocabulary.frameworks import Framework
from traceview.traces.facts import (
    forecast,
    launch_lines,
    module_lines,
    operations,
    python_events,
    savings,
)
from traceview.traces.facts.idle import gaps
from traceview.traces.facts.kernel_classes import KernelClass, kernel_classes, terms
from traceview.traces.facts.savings import GONE, Effect, Gain
from traceview.traces.facts.steps.steps import steady_kernels, warms_up
from traceview.traces.facts.work.peaks import peaks
from traceview.traces.trace import Trace, fact

# Rules on traces: a rule is data, and what all findings share is done here once.
#
# A rule says what is wrong and what to do, its claims measure it. From these come the severity,
# what the program gains where the CPU is what limits it, the share of the steady time, and the
# evidence.


@record
class TimeClaim:
    """The figures of one finding, and what they prove.

    `saved_ns` is the time that the program gains, of a steady time of `span_ns`; `lost_ns` what the
    work itself would take less, None where that makes no difference. Where the remedy was replayed,
    as `edit`, `error_ns` is the error of `saved_ns` (±). `values` are the evidence; `figures` join
    it where a sentence names them; `words` are put into sentences and are no evidence. `said` are
    sentences behind those of the rule. `remedy` and `saving` replace those of the rule. The
    severity follows from the times, within `at_least` and `at_most`, unless it is given as
    `severity`.
    """

    subject: Subject
    values: Mapping[str, Value]
    table: str | None
    row: Mapping[str, Value]
    saved_ns: int = 0
    lost_ns: int | None = None
    span_ns: int = 0
    window: tuple[int | None, int | None] = (None, None)
    work: LostTime | None = None
    cause: str = ""
    lost: LostTime | None = None
    figures: Mapping[str, Value] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    general: bool = False
    remedy: str = ""
    saving: Saving | None = None
    severity: Severity | None = None
    at_least: Severity = "info"
    at_most: Severity = "high"
    edit: Edit | None = None
    error_ns: int | None = None
    outside: bool = False

    @property
    def gain(self) -> tuple[int, int]:
        """What orders claims by the time that they save, of the program or of the work alone."""
        return self.saved_ns, self.lost_ns or 0


_BELOW = launch_lines.BELOW.replace(", where", "; there")
_AT, _FOR = "{launched_at:at}", "in the backward pass of {launched_at}"
_AT_LINE, _FOR_LINE = (
    f" Most are launched {where}[ in {{launched_in}}][ (`{{launched_source}}`)]{below}."
    for where, below in ((_AT, ""), (_FOR, launch_lines.BELOW))
)
_MORE_AT, _MORE_FOR = (
    f" More are launched {where}[ in {{launched_in}}] than {{launched_else}} ({{launched_pct}})"
    f"{below}."
    for where, below in ((_AT, ""), (_FOR, _BELOW))
)
_TIME_AT = (
    " By samples, about {launched_pct} of that time is launched {launched_at:at}"
    "[ in {launched_in}][ (`{launched_source}`)]."
)
_BY_LINE = (_AT_LINE, _FOR_LINE, _MORE_AT, _MORE_FOR, _TIME_AT)
_LAUNCHED = " {module}, called at {called}, launches most of {module_kernel}."
_BREAKS = " torch.compile breaks the graph of `{broken}` there[: {broken_reason}]."
Claims = Callable[[Trace], Iterable[TimeClaim]]


@record
class FindingRule:
    """A kind of finding: its claims, and what it says of each.

    `message`, `clauses` and `remedy` are sentences (see `rules.sentences`); `remedy` may be
    one in the terms of the framework. `saving` says how exact the time is; `general` is as in
    `Finding`.
    """

    claims: Claims
    message: str
    remedy: str | Callable[[Framework], str] = ""
    clauses: tuple[Clause, ...] = ()
    saving: Saving | None = None
    general: bool = False


def findings(trace: Trace, rules: Iterable[FindingRule]) -> Iterator[Finding]:
    """The findings of all rules, in their order."""
    for rule in rules:
        for claim in rule.claims(trace):
            finding = finding_of(trace, rule, claim)
            if finding is not None:
                yield finding


def finding_of(trace: Trace, rule: FindingRule, claim: TimeClaim) -> Finding | None:
    """What a rule says of a claim; None where it is worth no finding."""
    severity = claim.severity or _severity(claim)
    if severity is None:
        return None
    claim = _broken(trace, _launched(trace, claim))
    figures = {"saved_ns": claim.saved_ns, **claim.figures}
    known = {**figures, **claim.values, **claim.words}
    said = [each.text for each in rule.clauses if each.holds(known)]
    what = "copies" if claim.table == "copies" else "kernels"
    error_ns = claim.error_ns or 0
    limited = ""
    if claim.lost_ns is not None:
        limited = gain_sentence(claim.saved_ns, claim.lost_ns, what, error_ns)
        if is_cut(claim.saved_ns, claim.lost_ns) and claim.edit:
            limited += limit_sentence(forecast.model(trace), claim.edit)
    message = sentence("".join([rule.message, *said, *claim.said]), known) + limited
    if claim.table == "kernels":
        message = _summed(message, known, claim.span_ns, len(gaps.steady_spans_ns(trace)))
    # A claim's remedy may be a kernel rule's, whose brackets are code.
    remedy = claim.remedy or sentence(
        rule.remedy if isinstance(rule.remedy, str) else rule.remedy(terms(trace)), known
    )
    if not warms_up(trace):
        message = message.replace(" after warm-up", "")
    for name, word in claim.words.items():
        message, remedy = (text.replace(f"{{{name}}}", word) for text in (message, remedy))
    named = {*field_names(message), *field_names(remedy)} - claim.values.keys()
    figures = {name: value for name, value in figures.items() if name in named}
    usual: Saving = "at-most" if claim.error_ns is None else "about"
    return Finding(
        severity,
        message,
        remedy,
        claim.saved_ns,
        claim.subject,
        Evidence({**figures, **claim.values}, claim.table, claim.row, *claim.window),
        share_pct(claim.saved_ns, claim.span_ns) if claim.saved_ns else None,
        claim.cause,
        claim.lost,
        rule.general or claim.general,
        saving=claim.saving or rule.saving or usual,
        work=claim.work,
        edit=claim.edit,
        error_ns=claim.error_ns,
        severities=(claim.at_least, claim.at_most),
        outside=claim.outside,
    )


def _summed(message: str, known: Mapping[str, object], span_ns: int, gpus: int) -> str:
    """The message, a time of kernels that is longer than all of the time said to be a sum."""
    over = "streams" if gpus == 1 else "streams and GPUs"
    for name in ("total_ns", "gemm_ns"):
        time_ns = known.get(name)
        if isinstance(time_ns, int) and time_ns > span_ns > 0:
            message = message.replace(f"{{{name}}}", f"{{{name}}}, summed over {over}", 1)
    return message


def _launched(trace: Trace, claim: TimeClaim) -> TimeClaim:
    """A claim on a kernel, with the module that launches most of its time, where that is known."""
    subject = claim.subject
    known = module_lines.most_of_kernel(trace, subject.name) if subject.kind == "kernel" else None
    rest = tuple(each for each in claim.said if each not in _BY_LINE)
    if known is None or (subject.file and rest == claim.said):
        return claim
    at = replace(subject, file=known.module.file, line=known.module.line)
    said = (*rest, _LAUNCHED)
    return replace(claim, subject=at, values={**claim.values, **known.values}, said=said)


def _broken(trace: Trace, claim: TimeClaim) -> TimeClaim:
    """A claim on a line, with what torch.compile says of it where that breaks a graph."""
    file, line = claim.subject.file, claim.subject.line
    if not claim.saved_ns or claim.subject.kind != "line" or not file or line is None:
        return claim
    at = python_events.breaks_at(trace, file, line)
    if at is None or "broken" in claim.values:
        return claim
    values = {"broken": at.function, **({"broken_reason": at.reasons[0]} if at.reasons else {})}
    return replace(claim, values={**claim.values, **values}, said=(*claim.said, _BREAKS))


def _severity(claim: TimeClaim) -> Severity | None:
    severity = severity_of_part(claim.saved_ns, claim.lost_ns or 0, claim.span_ns)
    if severity is None:
        return None
    most, least = (SEVERITIES.index(each) for each in (claim.at_most, claim.at_least))
    return SEVERITIES[min(max(SEVERITIES.index(severity), most), least)]


def severity_of_part(saved_ns: int, lost_ns: int, span_ns: int) -> Severity | None:
    """Severity of what can be saved of a loss; `info` where only the loss is worth a finding."""
    severity = severity_of(saved_ns, span_ns)
    return "info" if severity is None and severity_of(lost_ns, span_ns) else severity


def gain_sentence(saved_ns: int, own_ns: int, what: str = "kernels", error_ns: int = 0) -> str:
    """A sentence on the gain of faster work, where the program gains far less, or more.

    `own_ns` is what the work, `what`, takes less. The sentence follows one on that. What may be
    saved within the error is not denied.
    """
    if saved_ns > (1 + FACTOR_ERROR) * own_ns > 0:
        return f" The program gains more, since the GPU also sits idle between these {what}."
    if 2 * (saved_ns + error_ns) >= own_ns:
        return ""
    gains = "little of that" if saved_ns else "nothing"
    return (
        f" For now the program would gain {gains}: the GPU would wait longer for the CPU, or for "
        "other work."
    )


def is_cut(saved_ns: int, own_ns: int) -> bool:
    """Whether a replay wins much less than what a finding is about, but a good part of it.

    Below half `gain_sentence` says so of work.
    """
    return own_ns <= 2 * saved_ns and 3 * saved_ns < 2 * own_ns


_CLEARLY = 2
"""Times as much as less of the other side wins what limits a program: where both win, both do."""


def limit_sentence(model: forecast.Model, edit: Edit) -> str:
    """A sentence on what limits the program once an edit is made; empty where neither side does."""
    gpu_ns, cpu_ns = model.next_ns(edit)
    if max(gpu_ns, cpu_ns) <= _CLEARLY * max(min(gpu_ns, cpu_ns), 0):
        return ""
    limit = "the CPU" if cpu_ns > gpu_ns else "GPU work"
    return f" Once this is done, {limit} limits the {'step' if len(model.follows) else 'run'}."


def gpu_limits(saved_ns: int, own_ns: int) -> bool:
    """Whether faster work makes the program about as much faster."""
    return own_ns <= 2 * saved_ns <= 4 * own_ns


def gpu_name(trace: Trace, device: int) -> str:
    """`GPU 0`, or `GPU 0 of host 3` where a trace holds several machines.

    `device` is a row of devices.
    """
    host = int(operations.device_hosts(trace)[device])
    machine = "" if host == NULL else f" of host {host}"
    return f"GPU {trace.devices['device_id'][device]}{machine}"


def gpu_subject(trace: Trace, device: int) -> Subject:
    """A GPU, by its row in devices, as the subject of a finding."""
    return Subject("device", gpu_name(trace, device))


Names = str | Callable[[str], object]
"""Kernels by name: a regular expression that their demangled names match, or a test of a name."""
FACTOR_ERROR = 0.2
"""Error of what a rule says that kernels take less, beside that of the replay: in docs/accuracy.md
such forecasts differ from what was measured by 1 to 22 % of it. The sum of the best that several
kinds of kernels can do is no forecast but a bound: it missed by 36 %."""
LAUNCH_ERROR = 0.5
"""Error of what kernels that become one save beyond their own time, as a part of the time of the
launches that go: programs with torch.compile won all of it or nothing (docs/accuracy.md)."""
_LONGEST = 4000
"""Characters of a name that are tested: a hostile trace has names of any length."""
_NONE: Mapping[str, Value] = {}


def faster(
    names: Names, factor: float, since: float = 0.0, until: float = np.inf, least_ns: int = 0
) -> Claims:
    """Claims on kernels of which others take 1 ÷ `factor` of the time, on the GPU with most.

    They hold on GPUs of compute capability from `since` to below `until`, for calls of at least
    `least_ns`: shorter ones are bound by their launch and their tail.
    """

    def claims(trace: Trace) -> Iterator[TimeClaim]:
        chosen = steady(trace, named(trace, names))
        chosen = chosen[trace.recorded("kernels").duration_ns[chosen] >= least_ns]
        for device, rows in costliest_gpu(
            trace, chosen, lambda device: since <= capability(trace, device) < until
        ):
            duration_ns = trace.recorded("kernels").duration_ns[rows]
            less_ns = np.ceil(duration_ns * (1 - 1 / factor)).astype(np.int64)
            values = {"speedup_factor": factor}
            yield kernel_claim(trace, device, rows, values, savings.faster(less_ns))

    return claims


def named(trace: Trace, names: Names) -> Mask:
    """True for the kernels of these names; each distinct name is tested once."""
    texts = trace.recorded("kernels").texts("name")
    test = re.compile(names, re.DOTALL).search if isinstance(names, str) else names
    codes = [code for code, name in _distinct_names(trace) if test(name)]
    if not codes:
        return np.zeros(len(texts), bool)
    matches = np.zeros(len(texts.values) + 1, bool)
    matches[codes] = True
    return picked(matches, texts.codes)


BACKWARD = r"(?i)backward|_bwd|\bbn_bw_|(?<!wino)grad(?:_|Kernel)|[dw]grad|cutlassB|_bprop"


def trains(trace: Trace) -> bool:
    """Whether kernels of a backward pass or an optimizer were recorded."""
    optimizes = kernel_classes(trace) == KernelClass.OPTIMIZER
    return bool((named(trace, BACKWARD) | optimizes).any())


@fact
def _distinct_names(trace: Trace) -> list[tuple[int, str]]:
    """The names of kernels that ran, each with its code."""
    names = trace.recorded("kernels").texts("name")
    used = groups.different(names.codes[names.codes >= 0]).tolist()
    return [(code, str(names.values[code])[:_LONGEST]) for code in used]


def steady(trace: Trace, chosen: Mask) -> RowNumbers:
    """Rows of the chosen kernels that are selected and not of warm-up."""
    rows = np.flatnonzero(chosen).astype(np.int32)
    return rows[steady_kernels(trace)[rows]] if len(rows) else rows


def capability(trace: Trace, device: int) -> float:
    """The compute capability of a GPU, a row of devices; -1 where it is unknown."""
    known = peaks(trace)[device]
    return known["capability"].value if "capability" in known else -1.0


def by_gpu(trace: Trace, rows: RowNumbers) -> dict[int, RowNumbers]:
    """These kernels by GPU, a row of devices."""
    devices = trace.recorded("kernels")["device"][rows]
    return {device: rows[own] for device, own in groups.rows_of(devices).items()}


def costliest_gpu(
    trace: Trace, rows: RowNumbers, fits: Callable[[int], bool] | None = None
) -> Iterator[tuple[int, RowNumbers]]:
    """The fitting GPU on which these kernels take most time, and those on it."""
    duration_ns = trace.recorded("kernels").duration_ns
    own = {device: of for device, of in by_gpu(trace, rows).items() if not fits or fits(device)}
    if own:
        yield max(own.items(), key=lambda each: int(duration_ns[each[1]].sum()))


@fact
def steady_ns(trace: Trace) -> Integers:
    """Time of the steady kernels of each GPU."""
    kernels = trace.recorded("kernels")
    own = np.where(steady_kernels(trace), kernels.duration_ns, 0)
    return groups.added(kernels["device"], own, len(trace.devices))


def kernel_claim(
    trace: Trace,
    device: int,
    rows: RowNumbers,
    values: Mapping[str, Value] = _NONE,
    effect: Effect = GONE,
    gaining: RowNumbers | None = None,
    lines_of: RowNumbers | None = None,
) -> TimeClaim:
    """A claim on kernels of a GPU, named by the longest call; by default they go.

    `gaining` are the rows of the effect where more kernels gain than the claim is about, `lines_of`
    those whose launches show the line, where others are launched at lines around it. Sentences
    may name `kernels`, their number, `total_ns`, their time, and `total_pct`, its share of all
    kernels' of that GPU after warm-up.
    """
    duration_ns = trace.recorded("kernels").duration_ns[rows]
    name = str(trace.recorded("kernels").texts("name")[rows[np.argmax(duration_ns)]])
    gain = of_kernels(trace, rows if gaining is None else gaining, effect)
    claim = TimeClaim(
        Subject("kernel", name),
        {**values, "saved_ns": gain.saved_ns},
        "kernels",
        {"name": name},
        **gained(gain),
        span_ns=gaps.steady_spans_ns(trace).get(device, 0),
        figures={
            "kernels": len(rows),
            "total_ns": int(duration_ns.sum()),
            "total_pct": 100 * int(duration_ns.sum()) / max(int(steady_ns(trace)[device]), 1),
        },
    )
    limits = gpu_limits(gain.saved_ns, gain.own_ns)
    return with_line(trace, claim, rows if lines_of is None else lines_of, limits)


def with_line(trace: Trace, claim: TimeClaim, rows: RowNumbers, limits: bool) -> TimeClaim:
    """The claim with the line that launches these kernels, if samples show one.

    `limits` says whether the GPU limits the program (see `gpu_limits`).
    """
    launched = launch_lines.launch_line(trace, rows, limits)
    if launched is None:
        return claim
    line, all_of_it = launched.line, launched.fraction == 1
    forward = launched.forward
    of = (_MORE_FOR, _FOR_LINE) if forward else (_MORE_AT, _AT_LINE)
    at: dict[str, Value] = {
        "launched_at": line.place,
        "launched_in": line.named_function,
        "launched_source": line.source,
        **(forward.below_values if forward else {}),
        **(
            {}
            if all_of_it
            else {"launched_pct": 100 * launched.fraction, "launched_else": line.elsewhere}
        ),
    }
    return replace(
        claim,
        subject=replace(claim.subject, file=line.file, line=line.line),
        figures={**claim.figures, **at},
        said=(*claim.said, _TIME_AT if launched.of_time else of[all_of_it]),
    )


def of_kernels(trace: Trace, rows: Array, effect: Effect = GONE) -> Gain:
    """The gain of a remedy of these kernels; by default, if they and their launches go."""
    gain = savings.of_operations(trace, operations.kernel_operations(trace)[rows], effect)
    if gain.error_ns is None or effect.less_ns is None:
        return gain
    launches_ns = max(gain.saved_ns - gain.own_ns, 0) if effect.becomes == "merged" else 0
    unsure_ns = LAUNCH_ERROR / effect.launches_part * launches_ns
    terms = gain.error_ns, FACTOR_ERROR * gain.saved_ns, unsure_ns
    return replace(gain, error_ns=round(float(np.linalg.norm(terms))))


class _Gained(TypedDict):
    saved_ns: int
    lost_ns: int | None
    edit: Edit | None
    error_ns: int | None


def gained(gain: Gain) -> _Gained:
    """The fields of a claim that a gain fills."""
    lost_ns = None if gain.edit is None else gain.own_ns
    return _Gained(saved_ns=gain.saved_ns, lost_ns=lost_ns, edit=gain.edit, error_ns=gain.error_ns)


def class_claim(
    trace: Trace,
    device: int,
    rows: RowNumbers,
    values: Mapping[str, Value] = _NONE,
    effect: Effect = GONE,
    gaining: RowNumbers | None = None,
    lines_of: RowNumbers | None = None,
) -> TimeClaim:
    """As `kernel_claim`, on a GPU and the class of kernels that takes most of the time."""
    kernels = trace.recorded("kernels")
    kind = np.bincount(kernel_classes(trace)[rows], kernels.duration_ns[rows]).argmax()
    when = intervals.covered(kernels, rows)
    claim = kernel_claim(trace, device, rows, values, effect, gaining, lines_of)
    return replace(
        claim,
        subject=replace(claim.subject, kind="device", name=gpu_name(trace, device)),
        table="classes",
        row={**operations.gpu_cells(trace, device), "class": KernelClass(int(kind)).label},
        work=LostTime(device, when),
    )


def whole_claim(
    trace: Trace,
    device: int,
    rows: RowNumbers,
    values: Mapping[str, Value],
    when: Intervals | None = None,
    effect: Effect = GONE,
) -> TimeClaim:
    """As `class_claim`, of kernels that are saved with their launches and gaps.

    `when` is the time that they take, gaps included, where that is more than theirs: the most that
    is saved where nothing can be replayed.
    """
    claim = class_claim(trace, device, rows, values, effect)
    work = claim.work if when is None else LostTime(device, when)
    if claim.edit is not None:
        return replace(claim, values=values, lost_ns=None, work=work)
    saved_ns = work.time.total() if work else 0
    return replace(claim, values=values, saved_ns=saved_ns, work=work)

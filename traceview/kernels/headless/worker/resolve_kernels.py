"""Resolve the kernels of a script: as launched, as declared by a signature, or guessed."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from types import FunctionType
from typing import Any

from traceview.base import units
from traceview.base.errors import InputError, TimeUpError
from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.headless import inference, signatures
from traceview.kernels.headless.compile_error import (
    NOT_ASCII,
    NOT_CONSTEXPR,
    NOT_IMPORTED,
    OF_TRITON_1,
)
from traceview.kernels.headless.compile_options import CompileOptions, Deadline
from traceview.kernels.headless.fakes import triton_driver
from traceview.kernels.headless.fakes.triton_driver import Gpu
from traceview.kernels.headless.project.call_sites import call_sites, condition_of
from traceview.kernels.headless.project.launch_arguments import (
    LaunchArguments,
    call_kernel_factories,
    globals_of,
    launch_arguments,
)
from traceview.kernels.headless.run_script import Ending, Script
from traceview.kernels.headless.worker.event_log import EventLog
from traceview.kernels.headless.worker.forked_task import cores
from traceview.kernels.headless.worker.guessed_arguments import (
    Attempt,
    Guesses,
    Problem,
    TrialCompilations,
    problem_of,
)
from traceview.kernels.headless.worker.jit_functions import (
    AutotuneConfig,
    Jitted,
    compile_for,
    jitted_in,
)
from traceview.kernels.ptx.model import Argument

_LEAST_S = 3.0
# Of the time that is left, for the arguments of a call.
_OF_CALL = 0.75
"""How long an attempt may take even after the deadline."""

_NOT_GUESSED = "cannot be guessed: "
_WITH = "; arguments are "
_NONE_LINE = re.compile(r"`([^`]*)`: .*(?:NoneType|None)\b")
_CALL_IT = "pass a script that calls its operations"
_CORRECT = "correct the kernel"
_DECLARE = 'declare its arguments with --signature "…", or pass a script that launches it'
_INSTALL = "install it and what it imports, or run this where it is installed"
_NAME_CONSTANTS = "declare each constant as a parameter instead, such as BLOCK_SIZE: tl.constexpr"
_GUESS = "or add --guess to compile its kernels with guessed arguments"

# What the text of an error says, and the remedy for it.
_ADVICE = {
    _NOT_GUESSED: "pass a script that launches the kernel, or declare each as "
    "tensordesc<fp16[128, 64]> in --signature",
    "JIT functions do not support **": _NAME_CONSTANTS,
    OF_TRITON_1: _NAME_CONSTANTS,
    NOT_CONSTEXPR: "define it as a constant, such as NAME = tl.constexpr(4), or pass it to the "
    "kernel as a tl.constexpr parameter",
    NOT_ASCII: "ptxas reads ASCII alone: name the file and its kernels in ASCII",
}

# The errors of a script without a kernel to report on: the facts that must hold (those of
# `_error`), what happened, and the remedy. The first whose facts hold is raised.
_EARLY = "before it launched a kernel, {script} {failure}"
_ERRORS = (
    ("early advice", _EARLY, "{advice}"),
    ("early intact is_kernel", _EARLY, _CORRECT),
    ("early intact", _EARLY, f"correct that, {_GUESS}"),
    (
        "missing",
        "{script} imports {missing}, which is not installed{and_failed}",
        "install it for {python}{build}, or set $TRACEVIEW_PYTHON to another Python{or_guess}",
    ),
    (
        "kernel others condition",
        "{script} has no Triton kernel {kernel!r}{it_failed}: {condition}, which does not hold "
        "here",
        "it has: {others}; another --arch may fulfil the condition",
    ),
    ("kernel others", "{script} has no Triton kernel {kernel!r}{it_failed}", "it has: {others}"),
    ("failure stand_in", "{script} {failure}", _CALL_IT),
    ("failure advice", "{script} {failure}", "{advice}"),
    ("failure", "{script} {failure}", "no kernel was compiled before that"),
    (
        "exit_line",
        "{script} exits at line {exit_line}, before it launches or defines a kernel",
        "change the condition under which it exits",
    ),
    (
        "inner",
        "{script} launches no Triton kernel, and its jitted functions are parts of kernels",
        _CALL_IT,
    ),
    ("", "{script} neither launches nor defines a Triton kernel", "{remedy}"),
)


def _advice(text: str) -> str | None:
    return next((advice for part, advice in _ADVICE.items() if part in text), None)


_MOST_REGISTERS = 255


def _holds_too_much(configuration: AutotuneConfig) -> bool:
    """Whether a thread's part of the tile of the two largest sizes exceeds its registers."""
    sizes = sorted(v for v in dict(configuration.constexprs).values() if type(v) is int)
    threads = WARP_THREADS * int(dict(configuration.options).get("num_warps") or 4)
    return len(sizes) > 1 and sizes[-1] * sizes[-2] > _MOST_REGISTERS * threads


@record
class KernelResolution:
    """Compiles the kernels that a script did not launch, after it has run.

    Each kernel gets one attempt, and more until the deadline, which all kernels share.
    """

    options: CompileOptions
    log: EventLog
    gpu: Gpu
    script: Script
    ending: Ending
    deadline: Deadline
    not_installed: tuple[str, ...] = ()
    # The kernels whose arguments have been reported.
    _described: set[str] = field(default_factory=set)
    # Of kernels that read a plain global, which Triton refuses: that, and its place.
    _refused: dict[str, tuple[str, str, int]] = field(default_factory=dict)

    def run(self) -> None:
        """Compile declared or guessed kernels where needed; log how the script ended.

        Raises InputError or TraceviewError if there is no kernel to report on.
        """
        ending, options, name = self.ending, self.options, self.script.name
        failure = ending.failure
        if ending.stopped:
            failure = f"did not end within {options.script_s:g} s and was stopped"
            if not self.log.variants:
                what = f"{name} {failure} before any kernel was compiled"
                raise TimeUpError(what, "allow more time with --timeout")
        if self.script.is_library or not (self.log.variants or options.kernel in ending.names):
            package = self.script.package
            project = package.project if package else None
            wanted = None if self.script.is_library else options.kernel
            call_kernel_factories(self.script.path, ending.names, project, wanted)
        if ending.failure and (self.log.variants or self._jitted):
            by_default = ending.stopped and options.timeout_s is None
            more = "; --timeout lets it run longer" if by_default else ""
            self.log.note(f"{name} {failure}; only kernels compiled by then are shown{more}")
        may_guess = options.guess or options.signature is not None or self.script.is_library
        # A kernel that is asked for by name, and that is not what failed.
        its_own = ending.is_kernel or ending.missing or _advice(failure or "")
        may_guess |= options.kernel in self._jitted and not its_own
        if ending.failure and not (self.log.variants or self.log.seen or may_guess):
            raise self._error(early=True)
        if options.signature is not None:
            names = self._selected()
            if len(names) > 1:
                remedy = f"name one of: {', '.join(names)}"
                raise InputError(f"{name} has {len(names)} kernels", remedy)
            self._compile_declared(self._jitted[names[0]], options.signature)
        elif self.log.variants:
            rest = [kernel for kernel in self._kernels if kernel not in self.log.seen]
            if rest and options.kernel is None:
                first = f"add :{rest[0]} to the target to compile it with guessed arguments"
                self.log.note(f"never launched and not shown: {', '.join(rest)} ({first})")
        else:
            self._compile_guessed()

    @functools.cached_property
    def _jitted(self) -> dict[str, Jitted]:
        undecorated = dict[str, Jitted]()
        function = self.ending.names.get(self.options.kernel or "")
        # The selected function may be plain Python, which a project passes to triton.jit.
        if isinstance(function, FunctionType) and not self.log.functions:
            import triton

            undecorated[function.__name__] = Jitted(triton.jit(function))
        defined = {jitted.name: jitted for jitted in jitted_in(self.ending.names)}
        known = self._inner | undecorated | defined
        wanted = self.options.kernel
        return known if wanted is None or wanted in known else known | self._imported(wanted)

    def _callees(self, jitted: Jitted) -> dict[str, Jitted]:
        """The jitted functions that a kernel may call, including those of other modules."""
        functions = dict(self._jitted)
        waiting = [jitted, *functions.values()]
        while waiting:
            function = waiting.pop().function.fn
            names, known = function.__code__.co_names, function.__globals__
            called = jitted_in({name: known[name] for name in names if name in known})
            new = [each for each in called if each.name not in functions and not each.is_of_library]
            functions |= {each.name: each for each in new}
            waiting += new
        return functions

    @property
    def _created(self) -> list[Jitted]:
        """All jitted functions so far, the last first."""
        # Of a function and its wrappers, the last created is the outermost.
        return list(jitted_in({str(at): f for at, f in enumerate(reversed(self.log.functions))}))

    @property
    def _inner(self) -> dict[str, Jitted]:
        """The kernels that functions of the script have defined so far."""
        own = [j for j in self._created if j.file == self.script.path]
        return {jitted.name: jitted for jitted in reversed(own)}

    @property
    def _first_imported(self) -> str | None:
        """The first kernel of a project that the script imports, as a target."""
        own = (j for j in self._created if "site-packages" not in j.file)
        trees = {j.name: j for j in own if not j.is_of_library}
        kernels = inference.kernels_among({name: j.tree for name, j in trees.items()})
        return next((f"{trees[name].file}:{name}" for name in reversed(kernels)), None)

    def _imported(self, kernel: str) -> dict[str, Jitted]:
        """The kernel of this name in a file that the script imports, also in its functions.

        Raises InputError if several files have one.
        """
        package = self.script.package.parent if self.script.package else None
        for node in ast.walk(ast.parse(Path(self.script.path).read_bytes())):
            if isinstance(node, ast.ImportFrom) and kernel in (each.name for each in node.names):
                with suppress(Exception):  # the user's code
                    importlib.import_module("." * node.level + (node.module or ""), package)
        named = [j for j in self._created if j.name == kernel and not j.is_of_library]
        places = sorted({f"{j.file}:{kernel}" for j in named})
        if len(places) > 1:
            what = f"{self.script.name} imports {len(places)} kernels {kernel!r}"
            raise InputError(what, f"name one of: {', '.join(places)}")
        return {each.name: each for each in named}

    @functools.cached_property
    def _kernels(self) -> list[str]:
        module = self.ending.names.get("__name__")
        own = {name: j.tree for name, j in self._jitted.items() if j.module == module}
        return inference.kernels_among(own)

    def _selected(self) -> list[str]:
        """The names of the selected kernels. Raises InputError if there are none."""
        wanted = self.options.kernel
        if wanted is None and self._kernels:
            return self._kernels
        if wanted in self._jitted:
            return [str(wanted)]
        raise self._error()

    def _error(self, *, early: bool = False) -> InputError:
        """The first of _ERRORS that holds; `early` if the script failed before any launch."""
        ending, kernel, failure = self.ending, self.options.kernel or "", self.ending.failure or ""
        missing = ending.missing or next(iter(self.not_installed), None)
        others = sorted(set(self._kernels) | self.log.seen)
        # Without torch a script fails at its first tensor, which says nothing more.
        failed = failure and not ending.missing and missing != "torch"
        facts = {
            "script": self.script.name,
            "early": early,
            "failure": failure,
            "advice": _advice(failure),
            "intact": self._jitted and not missing,
            "is_kernel": ending.is_kernel,
            "missing": missing if failure or not self._kernels else None,
            "and_failed": f", and {failure}" if failed else "",
            "python": sys.executable,
            "build": " (the CPU build is enough)" if missing == "torch" else "",
            "or_guess": f", {_GUESS}" if self._kernels else "",
            "kernel": kernel[:60],
            "others": ", ".join(others),
            "condition": kernel and others and condition_of(self.script.path, kernel),
            "it_failed": f" (it {failure})" if failure else "",
            "stand_in": "<stand-in for" in failure,
            "exit_line": ending.exit_line,
            "inner": self._inner,
            "remedy": self.log.remedy
            or f"name {self._first_imported or 'the file with its @triton.jit function'}, or a "
            "launching script",
        }
        what, remedy = next(
            (what, remedy)
            for needs, what, remedy in _ERRORS
            if all(facts[need] for need in needs.split())
        )
        return InputError(what.format_map(facts), remedy.format_map(facts))

    def _configurations(self, jitted: Jitted) -> Sequence[AutotuneConfig]:
        some = self.log.sampler(self.options.most_configs)
        # A tile that no registers hold takes its time to fail, which others then lack.
        return sorted(some(jitted.name, jitted.configurations), key=_holds_too_much)

    def _compile_declared(self, jitted: Jitted, signature: str) -> None:
        self.log.how = "declared"
        whole = signatures.is_whole(signature, jitted.parameters)
        for configuration in (AutotuneConfig(),) if whole else self._configurations(jitted):
            constexprs = dict(configuration.constexprs) | self.options.constexpr_values
            arguments = signatures.bind(signature, jitted.parameters, constexprs)
            problem = self._compile(jitted, arguments, configuration, {})
            if problem:
                raise InputError(f"{jitted.name} does not compile as declared: {problem.text}")

    def _compile_guessed(self) -> None:
        names, problems = self._selected(), list[Problem]()
        declared = all(self._jitted[name].declared for name in names)
        how = "those that its decorator declares" if declared else "inferred from the source"
        for jitted in (self._jitted[name] for name in names):
            if jitted.file != self.script.path:
                self.log.note(f"{jitted.name} is in {jitted.file}")
        self.log.note(f"{', '.join(names)}: not launched by the script, so the arguments are {how}")
        for at, name in enumerate(names):
            if at and self.deadline.passed:
                count = units.counted(len(names) - at, "kernel")
                self.log.write("left_out", text=f"{count} ({', '.join(names[at:])})")
                break
            problems += self._guess(self._jitted[name], self.deadline.shared(len(names) - at))
        self._trials.close()
        # They may be compiled again.
        triton_driver.allow_plain_globals(bool(self._refused))
        if not self.log.variants:
            raise InputError(problems[0].text, self._remedy(problems[0]))
        # Configurations of a kernel mostly fail for one reason.
        for text in {p.text.partition(_WITH)[0]: p.text for p in reversed(problems)}.values():
            self.log.note(text)

    def _remedy(self, problem: Problem) -> str:
        """The remedy for a kernel that compiles with none of the arguments tried in time."""
        if advice := _advice(problem.text):
            return advice
        if problem.is_kernel:
            return _INSTALL if NOT_IMPORTED in problem.text else _CORRECT
        what = "allow more time" if problem.is_slow else "try more arguments"
        longer = f"{what} with --budget {3 * self.options.trials_s:g}, "
        return f"{longer if self.deadline.passed or problem.is_slow else ''}{_DECLARE}"

    def _guess(self, jitted: Jitted, deadline: Deadline) -> list[Problem]:
        triton_driver.allow_plain_globals(False)
        signatures.check_names(self.options.constexprs, [p.name for p in jitted.parameters])
        helpers = {name: j.tree for name, j in self._callees(jitted).items()}
        guesses = Guesses(
            jitted,
            jitted.usage(helpers),
            self._calls(jitted),
            self.options.constexpr_values,
        )
        configurations, problems = self._configurations(jitted), list[Problem | None]()
        for at, configuration in enumerate(configurations):
            left = len(configurations) - at
            if at and deadline.passed:
                text = f"{units.counted(left, 'configuration')} of {jitted.name}"
                self.log.write("left_out", text=text)
                break
            for begun in configurations[at : at + cores()]:
                # Start to compile the first attempt of a configuration.
                attempt = next(guesses.attempts(begun))
                options = self._options(attempt.options, begun)
                self._trials.begin(jitted, attempt.arguments, options)
            # One variant that compiles is an answer: only after it do others share the time.
            until = deadline.shared(left) if self.log.variants else deadline
            problems.append(self._first_that_compiles(guesses, configuration, until))
        return [problem for problem in problems if problem]

    def _first_that_compiles(
        self, guesses: Guesses, configuration: AutotuneConfig, deadline: Deadline
    ) -> Problem | None:
        """Compile the first attempt that works; return the problem of the first if none does."""
        jitted, problem = guesses.jitted, None
        missing = [n for n in guesses.usage.descriptors if not guesses.is_passed(n)]
        waiting, listed = list[Attempt](), guesses.attempts(configuration)
        tried = set[tuple[Argument, ...]]()
        while attempt := waiting.pop() if waiting else next(listed, None):
            tried.add(attempt.arguments)
            remark = inference.in_words(attempt.arguments, attempt.origin, guessed=attempt.guessed)
            failed = self._tried(jitted, attempt, configuration, deadline)
            needs_tensor = _NONE_LINE.search(failed.text) if failed else None
            if needs_tensor:
                repaired = guesses.without_nones(attempt, needs_tensor[1])
            else:
                text = failed.text if failed else ""
                repaired = guesses.with_operands(attempt, text, configuration)
                repaired = repaired or guesses.with_smaller(attempt, text)
            if failed is None:
                if problem and problem.is_slow:
                    slow = problem.text.partition(_WITH)[0]
                    self.log.note(f"{slow} of its call, so one with a smaller tile is shown")
                self.log.how, self.log.assumed_sides = attempt.how, attempt.assumed
                self.log.guessed, self.log.integers = attempt.guessed, attempt.integers
                shown = inference.in_words(
                    attempt.arguments, attempt.origin, constants=False, guessed=attempt.guessed
                )
                # The configurations of a kernel differ in what the heading of each shows.
                is_known = attempt.how == "declared" or jitted.name in self._described
                remarks = () if is_known else (shown,)
                self._described.add(jitted.name)
                return self._compile(
                    jitted, attempt.arguments, configuration, attempt.options, remarks
                )
            verb = "does not compile" + (" " if failed.is_slow else ": ")
            text = f"{jitted.name} {verb}{failed.text}"
            if failed.is_kernel:
                return Problem(text, is_kernel=True)
            problem = problem or Problem(f"{text}; {remark}", is_slow=failed.is_slow)
            # What an error asks for is tried whatever the time: it mostly is right.
            is_new = repaired is not None and repaired.arguments not in tried
            if missing or (deadline.passed and not is_new):
                break
            waiting += [repaired] if repaired and is_new else []
        if not missing:
            return problem
        many = "are tensor descriptors, whose block shapes are" if len(missing) > 1 else ""
        takes = many or "is a tensor descriptor, whose block shape is"
        names = ", ".join(missing)
        return Problem(f"{jitted.name} {_NOT_GUESSED}{names} {takes} set at the launch")

    def _tried(
        self, jitted: Jitted, attempt: Attempt, configuration: AutotuneConfig, deadline: Deadline
    ) -> Problem | None:
        """Compile an attempt in a trial, without a report; return its problem, or None."""
        # Arguments of a call are right, even if they compile slowly: they get most of the time, and
        # a smaller tile the rest.
        seconds = max(_LEAST_S, deadline.left_s * (_OF_CALL if attempt.origin else 0.5))
        options = self._options(attempt.options, configuration)
        problem = self._trials.problem(jitted, attempt.arguments, options, seconds)
        if self._is_now_allowed(jitted, problem):
            return self._tried(jitted, attempt, configuration, deadline)
        return problem

    def _is_now_allowed(self, jitted: Jitted, problem: Problem | None) -> bool:
        """Allow the kernel to read plain globals, if that is its problem, for code to show."""
        if problem is None or problem.plain_global is None or jitted.name in self._refused:
            return False
        self._refused[jitted.name] = problem.plain_global
        triton_driver.allow_plain_globals(True)
        return True

    def _options(self, options: Mapping[str, Any], configuration: AutotuneConfig) -> dict[str, Any]:
        return dict(options) | dict(configuration.options) | self.options.launch_options

    @functools.cached_property
    def _trials(self) -> TrialCompilations:
        return TrialCompilations(self.gpu.target, self.log)

    def _calls(self, jitted: Jitted) -> list[LaunchArguments]:
        """The calls of a kernel in the source of its project."""
        file = Path(jitted.file)
        project = self.script.package.project if self.script.package else None
        parameters = jitted.parameters
        own = jitted.function.fn.__globals__
        calls = []
        for site in call_sites(jitted.name, file, project):
            known = own if site.file == file else globals_of(site.module, own, site.file)
            calls.append(launch_arguments(site, parameters, known, project))
        return sorted(calls, key=lambda call: -len(call.values))

    def _compile(
        self,
        jitted: Jitted,
        arguments: Sequence[Argument],
        configuration: AutotuneConfig,
        options: Mapping[str, Any],
        remarks: tuple[str, ...] = (),
    ) -> Problem | None:
        self.log.plain_global = self._refused.get(jitted.name)
        self.log.remarks = (*remarks, *filter(None, [configuration.label]))
        whole = self._options(options, configuration)
        values = {**configuration.constexprs, **configuration.options}
        self.log.configuration = values if configuration.label else None
        try:
            compile_for(self.gpu.target, jitted, arguments, whole)
        except Exception as error:
            problem = problem_of(error, self.log.functions)
        else:
            return None
        finally:
            self.log.configuration = None
        if self._is_now_allowed(jitted, problem):
            return self._compile(jitted, arguments, configuration, options, remarks)
        return problem

"""Inside the program: installs the remedies, times its steps, notes its first results, ends it."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, NoReturn

from traceview.trials.remedies import ProgramRemedy, named
from traceview.trials.remedies.base import BF16, INSTALLED, ROUNDING, TF32, replace_function
from traceview.trials.tryout import scratch
from traceview.trials.tryout.landlock import protect
from traceview.trials.tryout.reference import REFERENCE
from traceview.trials.tryout.source import edited, read_source
from traceview.trials.tryout.spec import FIGURE_STEPS, RunResult, Site, Spec

HOOKS = Path(__file__).resolve().parents[2] / "traces" / "recorders" / "injected"
_MOST_FIGURES = 64
_PATIENCE_S = 30.0
"""After which a recording that should end is ended by force."""
_CAUGHT = 3
"""Times that a program may catch what ends its recording, before it is ended at once."""


class Session:
    """One run of a program."""

    def __init__(self, spec: Spec) -> None:
        self.on = True
        self.is_done = self._is_protected = False
        self._spec = spec
        self._pid = os.getpid()
        self._step = -1
        self._marks: list[tuple[int, int, Any]] = []
        self._figures: dict[str, list[tuple[int, Any]]] = {"losses": [], "norms": []}
        self._switches: list[Callable[[bool], None]] = []
        self._applied: dict[str, None] = {}
        self._sites: dict[tuple[str, CodeType | None, int, str], Mapping[str, Any]] = {}
        self._precision = ROUNDING
        self._outside: dict[str, None] = {}
        self._torch: Any = None
        self._modules: tuple[str, ...] | None = None

    # What the driver calls.

    def begin(self) -> None:
        """Before the script runs: isolate it, and wait for its import of torch."""
        spec = self._spec
        random.seed(spec.seed)
        self._is_protected = _protected(spec)
        note = self._outside.setdefault
        sys.addaudithook(scratch.WriteWatch(spec.scratch, (spec.folder, *spec.linked), note))
        sys.addaudithook(self._changes_environment)
        if spec.limit_s:
            signal.signal(signal.SIGALRM, self._is_late)
            signal.setitimer(signal.ITIMER_REAL, spec.limit_s, _PATIENCE_S)
        sys.path.insert(0, str(HOOKS))
        try:
            from traceview_injected import import_hooks  # type: ignore[import-not-found]
            from traceview_injected.annotations import (  # type: ignore[import-not-found]
                torch_calls,
                training_steps,
            )
        finally:
            sys.path.remove(str(HOOKS))
        self._calls, self._training = torch_calls, training_steps
        import_hooks.after("torch", self._prepare)
        import_hooks.after("numpy", lambda numpy: numpy.random.seed(spec.seed))

    def source(self) -> bytes | str:
        """The script, with the edits of remedies that rewrite it."""
        path, text = Path(self._spec.own_script), ""
        for name in self._spec.remedies:
            remedy = _remedy(name)
            text_of = text or (read_source(path) if remedy.rewrites else "")
            if remedy.rewrites and (edits := remedy.rewrites(text_of)):
                new = [replace(each, text=remedy.in_run or each.text) for each in edits]
                text = edited(text_of, new)
                self._applied[name] = None
        return text or path.read_bytes()

    def finish(self, error: str = "", rejected: str = "", *, is_late: bool = False) -> None:
        """Write the result, once."""
        if self.is_done or os.getpid() != self._pid:
            return
        self.is_done = True
        try:
            measured = self._measured()
        except Exception as failure:  # Such as an error of the GPU that shows here.
            error, measured = error or f"{type(failure).__name__}: {failure}", {}
        RunResult(
            **measured,
            error=error,
            rejected=rejected,
            applied=tuple(self._applied),
            sites=tuple(self._user_sites()),
            precision=self._precision,
            outside=tuple(self._outside),
            is_protected=self._is_protected,
            is_late=is_late,
            modules=_libraries(self._modules or tuple(sys.modules)),
        ).write(self._spec.result)

    # What remedies call.

    def applied(self, name: str, callee: str, keywords: Mapping[str, Any] | None) -> None:
        """Note that a remedy took effect, and where in the user's code."""
        self._applied[name] = None
        if callee:
            self._sites[(name, *self._user_call(), callee)] = keywords or {}

    def reject(self, reason: str) -> NoReturn:
        """End the run: the remedy is wrong for the program."""
        self.finish(rejected=reason)
        self._end()

    def at_switch(self, switch: Callable[[bool], None]) -> None:
        """Call `switch` as the first step begins and whenever `on` changes."""
        self._switches.append(switch)

    # Steps.

    def _prepare(self, torch: Any) -> None:
        try:
            self._torch = torch
            torch.manual_seed(self._spec.seed)
            if not os.environ.get("TRACEVIEW_ANNOTATE"):
                # A recorder has wrapped these calls already.
                self._calls.wrap(torch, name_modules=False, carrier=(lambda text: text, id))
            self._training.watch = self._begins
            replace_function(torch, "save", self._saving)
            if not self._spec.records:
                self._note_results(torch)
            for name in self._spec.remedies:
                _remedy(name).install(torch, _Named(self, name))
        except Exception as error:
            self.finish(error=f"a hook failed: {type(error).__name__}: {error}")
            self._end()

    def _begins(self, step: int) -> None:
        """A step begins, and with it the one before has ended."""
        if os.getpid() != self._pid:
            return
        self._marks.append((step, perf_counter_ns(), self._event()))
        self._step = step
        if step >= self._spec.last_step:
            if self._spec.records:
                # Its profiler writes the recording when the program ends.
                self.finish()
                if step <= self._spec.last_step + _CAUGHT:
                    raise SystemExit(0)
            self.finish()
            self._end()
        on = self._spec.is_on(step)
        if on != self.on or step == 0:
            self.on = on
            for switch in self._switches:
                switch(on)

    def _is_late(self, *_: object) -> None:
        """End a recording with what it has; at the next alarm, the process."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self.finish(is_late=True)
        raise SystemExit(0)

    def _changes_environment(self, event: str, _: object) -> None:
        """At the first change that the program makes: later imports may depend on it.

        Itself or by calling a library, but not by importing one.
        """
        if event not in ("os.putenv", "os.unsetenv") or self._modules is not None:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") not in _IMPORTING:
            if self._is_of_user(frame.f_code.co_filename):
                self._modules = tuple(sys.modules)
                return
            frame = frame.f_back

    def _saving(self, original: Any) -> Any:
        """torch.save opens files in C++, where no audit event shows it."""

        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, str | os.PathLike):
                # The audit hook copies what is linked, and notes what lies outside.
                sys.audit("open", os.fspath(f), "wb", 0)
            return original(obj, f, *args, **kwargs)

        return save

    def _event(self) -> Any:
        cuda = self._torch.cuda
        if not (cuda.is_available() and cuda.is_initialized()):
            return None
        if cuda.is_current_stream_capturing():
            return None
        event = cuda.Event(enable_timing=True)
        event.record()
        return event

    def _end(self) -> NoReturn:
        """End the process without running any more of the program: no `finally`, no atexit."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _user_call(self) -> tuple[CodeType | None, int]:
        """Code and instruction of the innermost call from the user's files."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self._is_of_user(frame.f_code.co_filename):
                return frame.f_code, frame.f_lasti
            frame = frame.f_back
        return None, 0

    def _is_of_user(self, file: str) -> bool:
        spec = self._spec
        folders = (spec.scratch, spec.folder, str(Path(spec.own_script).parent))
        of_others = any(scratch.is_within(file, each) for each in (_PACKAGE, sys.prefix))
        return not of_others and any(scratch.is_within(file, each) for each in folders)

    def _user_sites(self) -> Iterator[Site]:
        for (name, code, instruction, callee), keywords in self._sites.items():
            file, line, end = "", 0, (0, 0)
            if code is not None:
                file = self._spec.users_file(code.co_filename)
                at = next(islice(code.co_positions(), instruction // 2, None))
                line, end = at[0] or 0, (at[1] or 0, at[3] or 0)
            yield name, file, line, end, callee, dict(keywords)

    # Results of the first steps.

    def _note_results(self, torch: Any) -> None:
        """Keep losses and gradient norms of the first steps, on the GPU until the run ends."""
        backward = torch.autograd.backward

        def noting(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            several = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
            if self._notes("losses"):
                total = sum(each.detach().double().sum() for each in several)
                self._figures["losses"].append((self._step, total))
            return backward(tensors, *args, **kwargs)

        def norm(optimizer: Any, *_: Any) -> None:
            if not self._notes("norms"):
                return
            grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
            grads = [g.detach() for g in grads if g is not None and not g.is_sparse]
            if grads:
                self._figures["norms"].append((self._step, _norm(torch, grads)))
                self._precision = max(self._precision, _rounding(grads))

        torch.autograd.backward = noting
        sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(norm)
        entered = torch.autocast.__enter__

        def enter(context: Any) -> Any:
            if not self._spec.remedies:
                self._precision = max(self._precision, _ROUNDINGS.get(str(context.fast_dtype), 0))
            return entered(context)

        torch.autocast.__enter__ = enter

    def _notes(self, kind: str) -> bool:
        few = len(self._figures[kind]) < _MOST_FIGURES
        return few and self._step < FIGURE_STEPS and os.getpid() == self._pid

    def _measured(self) -> dict[str, Any]:
        torch = self._torch
        if torch is None:
            return {}
        uses_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        if uses_gpu:
            torch.cuda.synchronize()
        if torch.get_float32_matmul_precision() != "highest" and not self._spec.remedies:
            self._precision = max(self._precision, TF32)
        steps = []
        for (step, begin, first), (after, end, last) in zip(
            self._marks, self._marks[1:], strict=False
        ):
            # A step that was broken off, as by an evaluation, begins again.
            if after == step + 1:
                by_gpu = first is not None and last is not None
                steps.append((step, first.elapsed_time(last) * 1e6 if by_gpu else end - begin))
        figures = {
            kind: tuple((step, float(value)) for step, value in values)
            for kind, values in self._figures.items()
        }
        device = torch.cuda.get_device_name() if uses_gpu else "cpu"
        return {"steps": tuple(steps), "device": device, **figures}


class _Named:
    """The session as one of its remedies sees it: a `RemedyRun`."""

    def __init__(self, session: Session, name: str) -> None:
        self._session, self._name = session, name
        self.reject, self.at_switch = session.reject, session.at_switch

    @property
    def on(self) -> bool:
        return self._session.on

    def applied(self, callee: str = "", keywords: Mapping[str, Any] | None = None) -> None:
        self._session.applied(self._name, callee, keywords)


def _remedy(name: str) -> ProgramRemedy:
    return REFERENCE if name == REFERENCE.name else named(name)


def _protected(spec: Spec) -> bool:
    """Protect the user's folder, and see that the program has places to write to."""
    usual = scratch.harmless()
    for folder in usual:
        with suppress(OSError):
            Path(folder).mkdir(exist_ok=True)
    place = Path(spec.scratch).parent
    kept = (spec.folder, *spec.linked)
    if not protect(kept, [*usual, str(place.parent)]):
        return False
    if any(scratch.is_within(each, tempfile.gettempdir()) for each in kept):
        tempfile.tempdir = os.environ["TMPDIR"] = str(place / "tmp")
        Path(tempfile.tempdir).mkdir()
    return True


def _libraries(names: Sequence[str]) -> tuple[str, ...]:
    """Of imported modules, those of Python and of what is installed, not the user's nor ours."""
    standard = str(Path(os.__file__).parent)

    def is_library(name: str) -> bool:
        file = getattr(getattr(sys.modules.get(name), "__spec__", None), "origin", None)
        if not isinstance(file, str) or name.partition(".")[0].startswith("traceview"):
            return False
        return scratch.is_within(file, standard) or not INSTALLED.isdisjoint(Path(file).parts)

    return tuple(filter(is_library, names))


_IMPORTING = ("importlib._bootstrap", "importlib._bootstrap_external")
_PACKAGE = str(Path(__file__).resolve().parents[2])
_ROUNDINGS = {"torch.bfloat16": BF16, "torch.float16": TF32}


def _norm(torch: Any, grads: list[Any]) -> Any:
    device, single = grads[0].device, torch.float32
    types = [torch.promote_types(grad.dtype, single) for grad in grads]
    norms = [
        torch.linalg.vector_norm(grad, dtype=each).to(device)
        for grad, each in zip(grads, types, strict=True)
    ]
    return torch.linalg.vector_norm(torch.stack(norms))


def _rounding(tensors: list[Any]) -> float:
    return max(_ROUNDINGS.get(str(tensor.dtype), ROUNDING) for tensor in tensors)

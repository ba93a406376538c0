"""What remedies win in programs with a fault: the truth for forecasts.

    python benchmarks/error_rates/what_if_pairs.py measure OUT    needs a GPU and nsys, 12 minutes
    python benchmarks/error_rates/what_if_pairs.py measure OUT --device cpu    a dry run
    python benchmarks/error_rates/what_if_pairs.py edits [OUT/measured.json]   as what-if edits
    python benchmarks/error_rates/what_if_pairs.py run NAME VERSION     one program, to record
    python benchmarks/error_rates/what_if_pairs.py forecast OUT/measured.json OUT    said, measured
    python benchmarks/error_rates/what_if_pairs.py table OUT     all, as in docs/accuracy.md

The programs are in two folders, and what was expected of them before any measurement is in the
expected.toml of each: in what_if/ ten programs whose remedies, alone and together, are edits that
we give; in findings/ those whose remedy is that of a finding of the report.

Processes of a program differ by more than most remedies win, so one process does all: it runs
under `traceview record`, which does not record yet, builds all versions and runs them in turn, in
blocks of 8 to 56 steps timed between CUDA events at the end of each step, without the first quarter
of a block. A time is the median of the blocks' medians. Then steps with the fault are timed by the
clock, and 12 to 40 more are recorded into OUT/NAME.sqlite.xz, as by `traceview record --steps`. Of
programs in what_if/ another process profiles the operations that a remedy makes faster, each alone,
for the factors on kernels that the edits contain.

A third of the programs is held back while the model is worked on: those whose name's hash says so.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import hashlib
import importlib
import json
import lzma
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

HERE = Path(__file__).resolve().parent
FOLDERS: Mapping[str, Mapping[str, Any]] = {
    folder: tomllib.loads((HERE / folder / "expected.toml").read_text(encoding="utf-8"))
    for folder in ("what_if", "findings")
}
PAIRS = {name: pair for pairs in FOLDERS.values() for name, pair in pairs.items()}
FOLDER_OF = {name: folder for folder, pairs in FOLDERS.items() for name in pairs}
BLOCK_S, BLOCK = 0.3, (8, 56)
"""Time of a block, and its steps: at least, at most."""
ROUNDS = (4, 12)
"""Rounds over all versions of a program: at least, at most."""
RECORDED_S, RECORDED = 0.4, (12, 40)
CHILD_LIMIT_S = 180
CONTEXT_LOST = 3
TIMES = "times"
FACTORS = "factors"
MEASURED = "measured.json"
LOCK = "PAIRS_LOCK"


def held_back(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % 3 == 0


def versions(name: str) -> dict[str, list[str]]:
    """The remedies of each version of a program; none of the fault."""
    remedies = {
        key: each["remedies"] for key, each in PAIRS[name].items() if isinstance(each, dict)
    }
    return {"fault": [], **remedies}


def program(name: str) -> Any:
    """The module of a program, with matrix products in plain fp32 as it starts."""
    import torch

    torch.set_float32_matmul_precision("highest")
    return importlib.import_module(f"benchmarks.error_rates.{FOLDER_OF[name]}.{name}")


# One program


def run(name: str, version: str, steps: int, device: str, ranges: bool) -> None:
    """Run a program as its user would, with an NVTX range per step if `ranges`."""
    import torch

    step = program(name).build(versions(name)[version], device)
    result: Any = None
    for _ in range(steps):
        with torch.cuda.nvtx.range("step") if ranges else contextlib.nullcontext():
            result = step()
    if device == "cuda":
        torch.cuda.synchronize()
    print(f"{name}, {version}: {steps} steps, result {float(result):.6g}")


# What a child process measures


def times(name: str, device: str, seconds: float) -> dict[str, Any]:
    """Medians of the blocks of each version in ms per step, and the last result; then a recording.

    Programs take turns: one is built and measured while others start, or write what they recorded.
    """
    module = program(name)
    with turn():
        steps = {key: module.build(words, device) for key, words in versions(name).items()}
        medians: dict[str, list[float]] = {key: [] for key in steps}
        results: dict[str, float] = {}
        if device == "cpu":
            for key, step in steps.items():
                durations, result = _time_on_cpu(step)
                medians[key].append(statistics.median(durations))
                results[key] = float(result)
            return {"blocks_ms": medians, "results": results}
        for step in reversed(steps.values()):
            _time_on_gpu(step, BLOCK[0])
        fault_ms = statistics.median(_time_on_gpu(steps["fault"], BLOCK[0])[0])
        number = within(BLOCK_S * 1e3 / fault_ms, BLOCK)
        began = time.perf_counter()
        for round_number in range(ROUNDS[1]):
            if round_number >= ROUNDS[0] and time.perf_counter() - began > seconds:
                break
            # Back and forth: a drift of the clocks is no advantage of a version.
            order = list(steps) if round_number % 2 == 0 else list(reversed(steps))
            for key in order:
                durations, result = _time_on_gpu(steps[key], number)
                medians[key].append(statistics.median(durations))
                results[key] = float(result)
        record_steps(steps["fault"], within(RECORDED_S * 1e3 / fault_ms, RECORDED))
    return {"blocks_ms": medians, "results": results, "block": number}


def within(number: float, bounds: tuple[int, int]) -> int:
    return max(bounds[0], min(math.ceil(number), bounds[1]))


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """One process at a time of those with the same lock file."""
    path = os.environ.get(LOCK)
    if not path:
        yield
        return
    with Path(path).open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Loader workers have inherited the file: to close it is not enough.
            fcntl.flock(lock, fcntl.LOCK_UN)


def _time_on_gpu(step: Callable[[], Any], number: int) -> tuple[list[float], Any]:
    """Steps of one block in ms on the clock of the GPU without the first, and the last result."""
    import torch

    torch.cuda.synchronize()
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(number)]
    for end in ends:
        result = step()
        end.record()
    torch.cuda.synchronize()
    dropped = number // 4
    pairs = zip(ends[dropped - 1 : -1], ends[dropped:], strict=True)
    return [before.elapsed_time(after) for before, after in pairs], result


def _time_on_cpu(step: Callable[[], Any]) -> tuple[list[float], Any]:
    """Three steps in ms, to see that they work, and the last result."""
    durations = []
    for _ in range(3):
        began = time.perf_counter()
        result = step()
        durations.append((time.perf_counter() - began) * 1e3)
    return durations, result


def record_steps(step: Callable[[], Any], number: int) -> None:
    """Time `number` steps by the clock and record as many more, as `traceview record --steps`.

    That option counts the steps of one optimizer, but here each version has its own.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from traceview_injected import python_sampler, start
    from traceview_injected.annotations import training_steps

    for each in gc.get_objects():
        if type(each) is training_steps.TrainingSteps:
            # The next optimizer that works is that of the loop.
            each.forget()
    optimizers: list[None] = []
    register_optimizer_step_post_hook(lambda *_: optimizers.append(None))
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(number):
        step()
    torch.cuda.synchronize()
    took_ns = round((time.perf_counter() - began) / number * 1e9)
    if optimizers:
        # Programs without have no steps that `--steps` could time.
        unrecorded = Path(os.environ[start.GATHER], training_steps.UNRECORDED)
        unrecorded.write_text(f"{took_ns} {number}", encoding="utf-8")
    torch.cuda.cudart().cudaProfilerStart()
    python_sampler.mark_clock()
    for _ in range(number + 1):
        step()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def factors(name: str, device: str, _: float) -> dict[str, Any]:
    """Of each operation alone: its kernels in the fault, and the factor on their time."""
    measured = {}
    for key, (before, after) in program(name).alone(device).items():
        old = kernel_times(before, device)
        new = kernel_times(after, device) if after else {}
        measured[key] = {
            "factor": sum(new.values()) / sum(old.values()),
            "before_us": old,
            "after_us": new,
            "regex": "|".join(sorted({name_pattern(each) for each in old})),
        }
    return measured


def kernel_times(operation: Callable[[], Any], device: str) -> dict[str, float]:
    """Time of each kernel of one call, in µs by name; without copies."""
    from torch import profiler
    from torch.autograd import DeviceType

    for _ in range(3):
        operation()
    if device == "cpu":
        began = time.perf_counter()
        operation()
        return {"operation_on_cpu": (time.perf_counter() - began) * 1e6}
    import torch

    torch.cuda.synchronize()
    calls = 10
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        for _ in range(calls):
            operation()
        torch.cuda.synchronize()
    totals: dict[str, float] = {}
    for event in profile.events():
        if event.device_type == DeviceType.CUDA and not event.name.startswith("Memcpy"):
            totals[event.name] = totals.get(event.name, 0) + event.time_range.elapsed_us()
    if not totals:
        raise RuntimeError("the profiler saw no kernels")
    return {kernel: total / calls for kernel, total in totals.items()}


_COMMON = {"unsigned", "native", "namespace", "anonymous", "unnamed", "instance"}


def name_pattern(kernel: str) -> str:
    """A regex for a kernel's name that both torch.profiler's and nsys's spelling of it match.

    nsys writes `<(int)4, …>` for `<4, …>`, and `<unnamed>` for `(anonymous namespace)`: only the
    longer words count, in their order: the first eight, as templates repeat themselves.
    """
    words = re.findall(r"[A-Za-z_]\w*", kernel)
    telling = [word for word in words if (len(word) > 5 or word == "float") and word not in _COMMON]
    return ".*".join(list(dict.fromkeys(telling))[:8]) or re.escape(kernel)


MEASUREMENTS: Mapping[str, Callable[[str, str, float], dict[str, Any]]] = {
    TIMES: times,
    FACTORS: factors,
}


def child(kind: str, names: Sequence[str], out: Path, device: str, seconds: float) -> None:
    """Measure each program and append a line of JSON for it; failures are lines, too."""
    for name in names:
        began = time.perf_counter()
        try:
            answer: dict[str, Any] = {"measured": MEASUREMENTS[kind](name, device, seconds)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answer["seconds"] = round(time.perf_counter() - began, 2)
        with out.open("a", encoding="utf-8") as lines:
            print(json.dumps({"name": name, **answer}), file=lines)
        gc.collect()
        if device == "cuda":
            import torch

            try:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            except RuntimeError:
                # The program broke the context of the GPU: the parent starts another process.
                sys.exit(CONTEXT_LOST)


# All programs


def measured_in_children(
    kind: str, names: Sequence[str], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """The lines of one process over all programs: of several, if programs end it."""
    lines = options.out / f"{kind}.{names[0]}.lines"
    answers: dict[str, dict[str, Any]] = {}
    while left := [name for name in names if name not in answers]:
        lines.unlink(missing_ok=True)
        command = [str(Path(__file__).resolve()), "child", kind, str(lines)]
        command += ["--device", options.device, "--seconds", str(options.seconds), "--only", *left]
        if kind == TIMES and options.device == "cuda":
            command = [*RECORD, "-o", str(options.out / f"{left[0]}.sqlite"), *command]
        log = options.out / f"{left[0]}.{kind}.log"
        status = run_process([sys.executable, *command], environment(options), log)
        written = lines.read_text(encoding="utf-8").splitlines() if lines.exists() else []
        for line in map(json.loads, written):
            answers[line.pop("name")] = line
        still = [name for name in left if name not in answers]
        if still and not (written and status == CONTEXT_LOST):
            how = f"took {CHILD_LIMIT_S} s" if status is None else f"ended with status {status}"
            answers[still[0]] = {"error": f"the process {how} while it ran"}
    lines.unlink(missing_ok=True)
    for name, answer in answers.items():
        if "error" in answer:
            print(f"{name}, {kind}: failed\n{answer['error']}", file=sys.stderr)
    return answers


def run_process(command: Sequence[str], environment: Mapping[str, str], log: Path) -> int | None:
    """The status of a command; None if it and what it started were killed, as it took too long."""
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True
        )
        try:
            return process.wait(CHILD_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


RECORD = (
    *("-m", "traceview", "record", "--backend", "nsys", "--force", "--whole"),
    *("--nsys-option=--capture-range=cudaProfilerApi", "--nsys-option=--capture-range-end=stop"),
)


def environment(options: argparse.Namespace) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, LOCK: str(options.out / "lock")}


def measure(options: argparse.Namespace) -> bool:
    """Measure all programs, write what was found after each; whether all succeeded."""
    names = options.only or [name for name in PAIRS if options.folder in (None, FOLDER_OF[name])]
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    found: dict[str, Any] = {"machine": machine(options.device), "programs": {}}
    edited = [name for name in names if "@" in json.dumps(PAIRS[name])]
    factors_of = measured_in_children(FACTORS, edited, options) if edited else {}

    def one(name: str) -> None:
        if time.perf_counter() - began > options.limit:
            return
        answer = measured_in_children(TIMES, [name], options)[name]
        found["programs"][name] = combined(name, answer, factors_of.get(name, {}))
        took = time.perf_counter() - began
        (options.out / MEASURED).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(
            f"{name}: {answer.get('seconds')} s, {took:.0f} s in all", file=sys.stderr, flush=True
        )
        plain = options.out / f"{name}.sqlite"
        if plain.exists():
            plain.with_suffix(".sqlite.xz").write_bytes(lzma.compress(plain.read_bytes(), preset=6))
            plain.unlink()

    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(one, names))
    if options.device == "cpu":
        for name, figures in found["programs"].items():
            results = {key: f"{each['result']:.6g}" for key, each in figures["versions"].items()}
            print(name, *(f"{key}: {result}" for key, result in results.items()), sep="   ")
    else:
        print_aligned(list(rows(found["programs"])))
    return not any(each["errors"] for each in found["programs"].values())


def machine(device: str) -> dict[str, str]:
    import torch

    gpu = torch.cuda.get_device_name() if device == "cuda" else "none"
    return {"gpu": gpu, "torch": str(torch.__version__), "python": sys.version.split()[0]}


def combined(name: str, answer: Mapping[str, Any], factors: Mapping[str, Any]) -> dict[str, Any]:
    """All figures of a program: per version its times, what it saves, what was expected."""
    measured, alone = answer.get("measured"), factors.get("measured", {})
    entries: dict[str, Any] = {}
    for version in versions(name) if measured else ():
        blocks, faults = measured["blocks_ms"][version], measured["blocks_ms"]["fault"]
        entry = {"ms": statistics.median(blocks), "blocks_ms": blocks}
        entry["result"] = measured["results"][version]
        if version != "fault":
            saved = [before - after for before, after in zip(faults, blocks, strict=True)]
            entry["saved_ms"] = statistics.median(faults) - entry["ms"]
            entry["saved_min_ms"], entry["saved_max_ms"] = min(saved), max(saved)
            if "edit" in PAIRS[name][version]:
                entry["edit"] = edit(name, version, alone)
        entries[version] = entry
    errors = [each["error"] for each in (answer, factors) if "error" in each]
    return {"expected": PAIRS[name], "versions": entries, "alone": alone, "errors": errors}


# Edits


def edit(name: str, version: str, alone: Mapping[str, Any]) -> list[str]:
    """The remedy as words of the what-if command: lines by number, kernels by factor."""
    return [_resolved(word, alone) for word in PAIRS[name][version]["edit"]]


def _resolved(word: str, alone: Mapping[str, Any]) -> str:
    if word.startswith("@"):
        named, *others = word[1:].split("|")
        operation = alone.get(named)
        if not operation:
            return word
        return f"{'|'.join([operation['regex'], *others])}={operation['factor']:.4f}"
    place = re.fullmatch(r"(\w+\.py):<(.+)>(=[\d.]+)?", word)
    if not place:
        return word
    file, text, factor = place.groups()
    source = (HERE / "what_if" / file).read_text(encoding="utf-8").splitlines()
    numbers = [number for number, line in enumerate(source, 1) if text in line]
    if len(numbers) != 1:
        raise ValueError(f"{file} has {len(numbers)} lines with {text!r}, not one")
    return f"{file}:{numbers[0]}{factor or ''}"


def print_edits(measured: Path | None) -> None:
    found = json.loads(measured.read_text(encoding="utf-8"))["programs"] if measured else {}
    for name in FOLDERS["what_if"]:
        alone = found.get(name, {}).get("alone", {})
        for version in list(versions(name))[1:]:
            print(name, version, *edit(name, version, alone))


# The table


def as_words(options: Sequence[str]) -> Iterator[str]:
    """The edits of a version as `traceview.what_if` takes them, names of kernels as globs."""
    for option, value in zip(options[::2], options[1::2], strict=True):
        if option in ("--kernel", "--fuse"):
            names, _, factor = value.rpartition("=")
            globs = (f"*{name.replace('.*', '*')}*" for name in names.split("|"))
            value = f"{'|'.join(globs)}={factor}"
        yield f"{option.removeprefix('--')} {value}"


def forecast(measured: Path, recordings: Path) -> None:
    """Print what replays of the recordings say beside what was measured.

    A step under the recorder takes longer than one without: the forecast is the measured step with
    the fault times replayed ÷ recorded step, both as without the recorder.
    """
    programs = json.loads(measured.read_text(encoding="utf-8"))["programs"]
    print("program version recorded_ms replayed_ms error_ms before_ms said_ms measured_ms off_pct")
    for name, found in programs.items():
        path = recordings / f"{name}.sqlite.xz"
        before_ms = found["versions"]["fault"]["ms"]
        for version, each in found["versions"].items():
            if version == "fault" or not path.exists():
                continue
            if (said := replayed(path, each["edit"], f"{name} {version}")) is None:
                continue
            plain, edited = said
            said_ms = before_ms * edited.replayed_ns / plain.replayed_ns
            figures = (
                *(plain.recorded_ns / 1e6, edited.replayed_ns / 1e6, edited.error_ns / 1e6),
                *(before_ms, said_ms, each["ms"], 100 * (said_ms / each["ms"] - 1)),
            )
            print(name, version, *(f"{figure:.3f}" for figure in figures))


def replayed(path: Path, edits: Sequence[str], what: str) -> tuple[Any, Any] | None:
    """The forecasts of a recording without the recorder: without and with edits; None if none fits.

    What edits name may be missing in a recording: they are left out, and said.
    """
    import traceview
    from traceview.base.errors import InputError

    trace, known = traceview.load(path), []
    for word in as_words(edits):
        try:
            traceview.what_if(trace, word)
        except InputError as error:
            print(f"{what}: {word[:60]}: {error}", file=sys.stderr)
        else:
            known.append(word)
    if not known:
        return None
    plain, edited = (
        traceview.what_if(trace, "no-recorder", *words).forecast for words in ((), known)
    )
    return plain, edited


COLUMNS = (
    *("program", "remedy", "finding, its place", "recorded, ms", "without nsys, ms"),
    *("before, ms", "said, ms", "measured, ms", "off"),
)


PLACES = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    *("later",) * 90,
)


def table(folder: Path, show_held_back: bool) -> None:
    """Print the table of docs/accuracy.md: what this version says of each remedy, and what it won.

    Said is the measured step with the fault times the share that the remedy leaves of it, by the
    finding of the report, or by edits of what-if; off is said − measured, as a share of the step
    before. Programs that are held back are in italics, and left out unless `show_held_back`.
    """
    import traceview

    print(f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}", sep="\n")
    offs: dict[bool, list[float]] = {False: [], True: []}
    measured = json.loads((folder / MEASURED).read_text(encoding="utf-8"))["programs"]
    for name in sorted(measured, key=lambda each: (FOLDER_OF[each], list(PAIRS).index(each))):
        path, found = folder / f"{name}.sqlite.xz", measured[name]["versions"]
        if held_back(name) and not show_held_back:
            continue
        if not path.exists() or not found:
            print(f"{name}: no recording or no measurement", file=sys.stderr)
            continue
        report: Any = traceview.analyze(traceview.load(path))
        told, program = report.verdict, PAIRS[name]["program"]
        before = found["fault"]["ms"]
        steps = [told.step_median_ns or 0, told.step_unrecorded_ns or told.step_median_ns or 0]
        for version in list(found)[1:]:
            expected, after = PAIRS[name][version], found[version]["ms"]
            if "finding" in expected:
                (what, place, *_), left = said_by(report, expected["finding"])
                at = PLACES[int(place.split()[0]) - 1] if place else ""
                source, share = ", ".join(filter(None, (what, at))), left[1] if left else None
            else:
                said = replayed(path, found[version]["edit"], f"{name} {version}")
                source = "`what-if`"
                share = said[1].replayed_ns / said[0].replayed_ns if said else None
            off = None if share is None else 100 * (before * share - after) / before
            if off is not None and not expected.get("finding", {}).get("absent"):
                offs[held_back(name)].append(abs(off))
            cells = (
                *(f"*{program}*" if held_back(name) else program, expected["what"], source),
                *(_ms(each / 1e6) for each in steps),
                *(_ms(before), "–" if share is None else _ms(before * share), _ms(after)),
                "" if off is None else f"{off:+.1f} %".replace("-", "−"),
            )
            print(f"| {' | '.join(cells)} |")
    for which, those in (("worked with", offs[False]), ("held back", offs[True])):
        if those:
            print(
                f"{which}: {sum(off <= 15 for off in those)} of {len(those)} within 15 % of the "
                f"step before; median {statistics.median(those):.1f} %, at most {max(those):.1f} %"
            )


def _ms(time_ms: float) -> str:
    return f"{time_ms:.3g}" if time_ms < 100 else f"{time_ms:.1f}"


def said_by(
    report: Any, expected: Mapping[str, Any]
) -> tuple[list[str], tuple[float, float] | None]:
    """Cells on the finding that is expected; what it saves in ms, and the share of a step left."""
    step_ns = report.verdict.step_median_ns or 0
    plain_ns = report.verdict.step_unrecorded_ns or step_ns
    steps = [f"{step_ns / 1e6:.3f}", f"{plain_ns / 1e6:.3f}"]
    wanted = "none expected" if expected.get("absent") else "not found"
    for place, ranked in enumerate(report.findings, 1):
        if ranked.analysis != expected["analysis"]:
            continue
        if not re.search(expected["words"], ranked.finding.message):
            continue
        cells = [ranked.analysis, f"{place} {ranked.finding.severity}"]
        told = ranked.forecast
        if told is None or told.saved_per_step_ns is None:
            return [*cells, "none", *steps], None
        error = f" ± {told.error_ns / 1e6:.3f}" if told.error_ns is not None else ""
        saves = f"{told.saving} {told.saved_per_step_ns / 1e6:.3f}{error}"
        left = (told.saved_per_step_ns / 1e6, share_left(report.recording, ranked))
        return [*cells, saves, *steps], left
    return [f"{expected['analysis']}: {wanted}", "", "", *steps], None


def share_left(trace: Any, ranked: Any) -> float:
    """The step with the remedy of a finding ÷ without, both as without the recorder.

    As recorded where the remedy is not replayed.
    """
    from traceview.traces.facts.forecast import model

    if not ranked.finding.edit:
        return 1 - ranked.forecast.saved_per_step_ns / ranked.forecast.step_ns

    replayed = model(trace).forecast(ranked.finding.edit)
    return replayed.replayed_ns / replayed.recorded_ns


def rows(programs: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    yield "program", "version", "ms", "saved, ms", "(min to max)", "saved", "expected", ""
    for name, figures in programs.items():
        fault = figures["versions"].get("fault")
        if not fault:
            yield name, "failed", *[""] * 6
            continue
        low, high = PAIRS[name]["step_ms"]
        inside = "" if low <= fault["ms"] <= high else "outside"
        yield name, "fault", f"{fault['ms']:.3f}", "", "", "", f"{low} to {high} ms", inside
        for version, entry in list(figures["versions"].items())[1:]:
            share = 100 * entry["saved_ms"] / fault["ms"]
            low, high = PAIRS[name][version]["saved_pct"]
            least, most = entry["saved_min_ms"], entry["saved_max_ms"]
            yield (
                *("", version, f"{entry['ms']:.3f}", f"{entry['saved_ms']:.3f}"),
                *(f"({least:.3f} to {most:.3f})", f"{share:.0f} %", f"{low} to {high} %"),
                "" if low <= share <= high else "outside",
            )


def print_aligned(table: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = zip(row, widths, strict=True)
        print("  ".join(cell.ljust(width) for cell, width in cells).rstrip())


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs, measures, children, edits = (
        commands.add_parser(each) for each in ("run", "measure", "child", "edits")
    )
    said, tables = (commands.add_parser(each) for each in ("forecast", "table"))
    said.add_argument("measured", type=Path)
    said.add_argument("recordings", type=Path)
    tables.add_argument("folder", type=Path)
    tables.add_argument("--held-back", action="store_true", help="show held-back programs, too")
    runs.add_argument("name", choices=PAIRS)
    runs.add_argument("version", choices=["fault", "A", "B", "A+B"])
    runs.add_argument("--steps", type=int, default=60)
    runs.add_argument("--ranges", action="store_true", help="an NVTX range around each step")
    children.add_argument("kind", choices=MEASUREMENTS)
    measures.add_argument("--folder", choices=FOLDERS)
    measures.add_argument("--at-once", type=int, default=1, help="programs that start or end")
    measures.add_argument("--limit", type=float, default=math.inf, help="s; begins none after it")
    edits.add_argument("measured", type=Path, nargs="?")
    for each in (runs, measures, children):
        each.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    for each in (measures, children):
        each.add_argument("out", type=Path)
        each.add_argument("--only", nargs="+", choices=list(PAIRS))
        each.add_argument("--seconds", type=float, default=5, help="of blocks, per program")
    return parser


def main() -> None:
    options = arguments().parse_args()
    match options.command:
        case "forecast":
            forecast(options.measured, options.recordings)
        case "table":
            table(options.folder, options.held_back)
        case "run":
            run(options.name, options.version, options.steps, options.device, options.ranges)
        case "measure":
            sys.exit(0 if measure(options) else 1)
        case "child":
            names = options.only or list(PAIRS)
            child(options.kind, names, options.out, options.device, options.seconds)
        case "edits":
            print_edits(options.measured)


if __name__ == "__main__":
    main()

"""Programs of any names and depth under torch.profiler, which records functions and not lines."""

import random
import re
from pathlib import Path

import pytest

from tests.analyses.test_recorder_wording import sentences
from tests.trace.kineto.traces import Event, call, kernel, python, span, write
from traceview.traces.reporting import Report, analyze
from traceview.traces.trace.load import load

BARE = re.compile(r"(?<![\w(/.])[\w/]+\.py:\d+")
LAUNCHERS = {
    "triton": ["triton/runtime/jit.py(330): <lambda>", "triton/runtime/jit.py(563): run"],
    "triton autotuned": [
        "triton/runtime/autotuner.py(9): run",
        "triton/runtime/jit.py(330): <lambda>",
        "triton/runtime/jit.py(563): run",
    ],
    "inductor": ["torch/_inductor/runtime/triton_heuristics.py(900): run"],
    "torch": ["torch/_ops.py(1158): __call__"],
    "numba": ["numba/cuda/dispatcher.py(200): __call__", "numba/cuda/dispatcher.py(470): call"],
}
BELOW = [
    "<string>(1): dynamic_func",
    "<frozen os>(680): __getitem__",
    "<built-in method get of dict object at 0x7f00>",
    "inspect.py(3200): bind",
]
OTHERS = ["json/decoder.py(344): decode"]
STEPS, PITCH_US, STEP_US = 12, 40, 900


class Program:
    """Steps of a few launches, and one behind `frames` of 600 µs, in a function below others."""

    def __init__(self, seed: int, frames: list[str]) -> None:
        self.random, self.events, self.number = random.Random(seed), list[Event](), 0
        names = [f"{word}_{self.random.randrange(99)}" for word in ("run", "apply", "mix", "norm")]
        depth = self.random.randint(1, len(names))
        self.chain = [
            (f"{self.random.choice(('model', 'src/utils', 'a/b'))}.py", 10 * place + 5, name)
            for place, name in enumerate(names[:depth])
        ]
        end = STEPS * STEP_US
        self.begin("train.py(1): <module>", 0, end)
        for step in range(STEPS):
            at = step * STEP_US
            self.events.append(span("user_annotation", f"ProfilerStep#{step}", at, STEP_US - 20))
            for file, line, name in self.chain:
                self.begin(f"{file}({line}): {name}", at, STEP_US - 5)
            for number in range(6):
                self.launch(at + PITCH_US * number + 10)
            at += 6 * PITCH_US
            for name in (*frames, self.random.choice(BELOW) if frames != OTHERS else OTHERS[0]):
                self.begin(name, at, 600)
            self.launch(at + 605)

    def begin(self, name: str, at: int, length: int) -> None:
        self.number += 1
        self.events.append(python(name, at, length, self.number, None))

    def launch(self, at: int) -> None:
        self.number += 1
        self.events.append(call("cudaLaunchKernel", at, 4, self.number))
        self.events.append(kernel(f"k{at % STEP_US}", at + 6, 5, self.number))

    def report(self, folder: Path, **run: str) -> Report:
        trace = load(write(folder / "t.json", self.events))
        return analyze(trace.but(run={**trace.run, **run}))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_place_is_a_function_and_a_launcher_launches(launcher, seed, tmp_path):
    program = Program(seed, LAUNCHERS[launcher])
    text = "\n".join(finding_texts(program.report(tmp_path)))
    file, line, name = program.chain[-1]
    assert f"in {name} ({file.rpartition('/')[2]}:{line})" in text
    assert not BARE.search(text)
    assert "any other line" not in text
    assert "other work than launching" not in text
    assert "another thread" not in text


@pytest.mark.parametrize("seed", range(2))
def test_what_no_launcher_calls_is_other_work(seed, tmp_path):
    text = "\n".join(finding_texts(Program(seed, OTHERS).report(tmp_path)))
    assert "other work than launching" in text


@pytest.mark.parametrize("seed", range(2))
def test_samples_of_our_own_name_lines(seed, tmp_path):
    program = Program(seed, LAUNCHERS["triton"])
    file, line, name = program.chain[-1]
    text = "\n".join(finding_texts(program.report(tmp_path, backend="torch")))
    assert f"at {file.rpartition('/')[2]}:{line} in {name}" in text


def finding_texts(report: Report) -> list[str]:
    return [text for text in sentences(report) if text.endswith(".")]

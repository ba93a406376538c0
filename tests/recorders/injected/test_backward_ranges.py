"""Ranges of modules in a backward pass, beside the truth: autograd's sequence numbers."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.headless.forked_python import run_script
from traceview.traces.recorders import options

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("torch"),
    reason="torch is not installed: pip install 'traceview[workloads]'",
)

INJECTED = Path(options.__file__).parent / "injected"
# The sequence number of what a backward pass runs is that of what the forward pass ran, and the
# module that ran it is known there. Ranges are events of torch.profiler.
PROGRAM = """
import random, sys
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from traceview_injected import annotations
from traceview_injected.annotations import nvtx_ranges

def start(text):
    event = record_function(text)
    event.__enter__()
    return event
nvtx_ranges._of_torch = lambda: (start, lambda event: event.__exit__(None, None, None))
annotations.install("modules")

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x):
        return self.out((self.q(x) @ x.transpose(-1, -2)).softmax(-1) @ x), x

class Block(nn.Module):
    def __init__(self, chance):
        super().__init__()
        kinds = ["plain", "residual", "attention", "shared", "in place", "nothing"]
        self.kind = chance.choice(kinds)
        self.a, self.b, self.drop = nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.0).eval()
        self.attention = Attention()
    def forward(self, x):
        if self.kind == "residual": return x + self.drop(self.b(self.a(x).relu()))
        if self.kind == "attention": return self.attention(self.b(x))[0] + self.a(x)
        if self.kind == "shared": return self.a(self.b(self.a(x).tanh()))
        if self.kind == "in place": return self.a(self.b(x)).mul_(2)
        if self.kind == "nothing": return self.drop(x)
        return self.drop(self.b(x * 2))

chance = random.Random(int(sys.argv[1]))
net = nn.Sequential(nn.Linear(8, 8), *[Block(chance) for _ in range(2)])
x = torch.randn(4, 8, requires_grad=chance.random() < 0.5)
net(x).sum().backward()
with profile(activities=[ProfilerActivity.CPU]) as profiled:
    (net(x) * 3).sum().backward()

ranges, operators = [], []
for event in profiled.events():
    span = event.time_range.start, event.time_range.end
    if event.name.startswith("traceview:range:"):
        ranges.append((*span, event.name.removeprefix("traceview:range:")))
    elif event.sequence_nr >= 0:
        operators.append((*span, event.name, event.sequence_nr))

def innermost(start, end):
    around = [each for each in ranges if each[0] <= start and end <= each[1]]
    return min(around, key=lambda each: each[1] - each[0], default=(0, 0, ""))[2]

(began, *_), = [each for each in ranges if each[2] == "backward"]
made = {number: innermost(start, end) for start, end, _, number in operators if start < began}
for start, end, name, number in operators:
    if start >= began and name.startswith("autograd::engine") and number in made:
        print(made[number] or "-", innermost(start, end) or "-", name.rpartition(" ")[2])
"""


@pytest.mark.programs
@pytest.mark.parametrize("seed", range(8))
def test_what_a_module_did_is_undone_in_its_range(tmp_path, seed):
    (tmp_path / "train.py").write_text(PROGRAM)
    kept = {name: value for name, value in os.environ.items() if "TRACEVIEW" not in name}
    done = run_script(
        [sys.executable, "train.py", str(seed)],
        {**kept, "PYTHONPATH": str(INJECTED)},
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    nodes = [line.rsplit(" ", 2) for line in done.stdout.splitlines()]
    assert len(nodes) >= 3
    outside = {"forward Sequential", "-"}
    for made, undone, node in nodes:
        assert undone == ("backward" if made in outside else made), (node, done.stdout)

"""Kinds of phases: training, evaluation, generation and replay, by what is launched."""

import numpy as np

from tests.build import Export
from tests.facts.phases.test_compilation import COMPILE, MS, sampled
from traceview.traces.analyses.phases.phases import Phase, passes_around, phases

AUTOGRAD = 9


class Program:
    """Launches one millisecond apart, by letter.

    f forward, b backward, o optimizer, i initialization, g graph, e a kernel of inference, d a
    token drawn, t attention.
    """

    def __init__(self) -> None:
        self.export = Export().named_thread(AUTOGRAD, "pt_autograd_0")
        self.time = 0

    def runs(self, text: str) -> "Program":
        for letter in text:
            at = self.time * MS
            call, work = (at, at + 5_000), (at + 10_000, at + MS // 2)
            if letter == "g":
                self.export.graph_whole(call, work)
            else:
                thread = AUTOGRAD if letter == "b" else 0
                self.export.launch(call, work, thread=thread, name=NAMES[letter])
            self.time += 1
        return self

    def idles(self, milliseconds: int) -> "Program":
        self.time += milliseconds
        return self

    def compiles(self, milliseconds: int) -> "Program":
        sampled(self.export, self.time, self.time + milliseconds, COMPILE)
        return self.idles(milliseconds)


NAMES = {
    "f": "forward", "b": "backward", "i": "distribution_elementwise", "e": "infer",
    "o": "multi_tensor_apply_kernel<FusedAdam>", "t": "flash_fwd_kernel", "d": "reduce<ArgMaxOps>",
}  # fmt: skip


def told(program, folder):
    found = phases(program.export.load(folder))
    assert (found.start_ns[1:] == found.end_ns[:-1]).all()
    rows = zip(found.phase.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True)
    return [(Phase(phase).label, round(start / MS), round(end / MS)) for phase, start, end in rows]


def test_training_begins_with_its_first_forward_pass(tmp_path):
    program = Program().runs("iii").idles(20).runs(5 * "ffffffffffbbo")

    assert [row[:2] for row in told(program, tmp_path)] == [("start-up", 0), ("training", 23)]


def test_evaluation_is_training_without_a_backward_pass(tmp_path):
    program = Program().runs(5 * "ffffffffffbbo").runs(20 * "ffffffffff")

    assert [row[:2] for row in told(program, tmp_path)] == [("training", 0), ("evaluation", 65)]


def test_evaluation_between_epochs(tmp_path):
    epoch = 6 * "ffffffffffbbo" + 8 * "ffffffffff"

    names = [name for name, *_ in told(Program().runs(2 * epoch), tmp_path)]

    assert names == ["training", "evaluation", "training", "evaluation"]


def test_a_program_that_trains_nothing_computes(tmp_path):
    assert [name for name, *_ in told(Program().runs("eeeeeeee"), tmp_path)] == ["compute"]


def test_tokens_drawn_after_attention_are_generation(tmp_path):
    assert [name for name, *_ in told(Program().runs("eeteetd" * 6), tmp_path)] == ["generation"]


def test_graph_launches_are_replay(tmp_path):
    names = [name for name, *_ in told(Program().runs("eeeeeeeeeeee" + "g" * 40), tmp_path)]

    assert names[-1] == "replay"


def test_compilation_is_laid_over_the_other_phases(tmp_path):
    program = Program().runs("i").compiles(300).runs(5 * "ffffffffffbbo")

    rows = told(program, tmp_path)

    assert [name for name, *_ in rows] == ["start-up", "compilation", "training"]
    assert rows[1][1:] == (1, 301)


def test_passes_around_their_bursts():
    evidence = np.array([letter == "b" for letter in (10 * "." + "bb") * 6 + "." * 50 + "bb"])
    passes, usual = passes_around(evidence)

    assert usual == 11
    assert passes[: 6 * 12].all()
    assert not passes[6 * 12 : -12].any()
    assert passes[-12:].all()

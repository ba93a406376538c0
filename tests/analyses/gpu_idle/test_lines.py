"""Idle time by the line of the program that the launching thread was at."""

from types import SimpleNamespace

import pytest

import traceview
from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.gpu_idle import remedies
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS
from traceview.traces.facts.idle import lines

MS = 1_000_000
SITE = "/usr/lib/python3.12/site-packages"
MAIN = ("/work/train.py", 40, "<module>")
LOAD = ("/work/train.py", 12, "get_batch")
LINEAR = (f"{SITE}/torch/nn/modules/linear.py", 134, "forward")
BACKWARD = (f"{SITE}/torch/autograd/graph.py", 865, "_engine_run_backward")
ADAM = (f"{SITE}/torch/optim/adam.py", 460, "_single_tensor_adam")
LOADER = (f"{SITE}/torch/utils/data/dataloader.py", 1491, "_next_data")
QUEUE_WAIT = ("/usr/lib/python3.12/threading.py", 355, "wait")
FETCH = (f"{SITE}/torch/utils/data/_utils/fetch.py", 52, "fetch")
JAX = f"{SITE}/jax/_src"
READ = (f"{JAX}/array.py", 640, "_value")
COMPILE = (f"{JAX}/compiler.py", 300, "backend_compile_and_load")
STEP = ("/work/train.py", 41, "epoch")
LINE = ("file", "line", "function", "inner", "activity", "samples", "idle_ns")


def loop(*, gap_ms: int, steps: int = 20, thread: int | None = None) -> Export:
    """Kernels of 1 ms, each launched when the GPU has been idle for `gap_ms`."""
    export, period = Export(), (1 + gap_ms) * MS
    for step in range(steps):
        start = step * period
        export.launch((start - 5_000, start - 3_000), (start, start + MS), thread=thread)
    return export


def sample_gaps(export: Export, *stack, gap_ms: int, steps: int = 20, **where) -> Export:
    """A sample per ms, in the middle of each, where the GPU is idle; else one in main."""
    for number in range(steps * (1 + gap_ms)):
        at = number % (1 + gap_ms)
        export.python_sample(number * MS + MS // 2, *(stack if at else (MAIN,)), **where)
    return export


def test_a_gap_is_divided_among_its_samples(tmp_path):
    export = loop(gap_ms=4, steps=3)
    export.python_sample(1_500_000, LOAD, MAIN).python_sample(2_500_000, LOAD, MAIN)
    export.python_sample(3_500_000, LOAD, MAIN).python_sample(4_500_000, LINEAR, MAIN)
    export.python_sample(5_500_000, LINEAR, MAIN)  # while the GPU works

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "lines", *LINE) == [
        (*LOAD, None, "cpu", 3, 3 * MS),
        (*MAIN, "torch.nn.modules.linear.forward", "cpu", 1, MS),
    ]
    # The second gap has no sample: its 4 ms belong to no line.
    assert rows(result, "lines", "share_pct") == [(37.5,), (12.5,)]


def test_short_gaps_stand_for_each_other(tmp_path):
    export = Export()
    for step in range(101):
        export.launch((step * 1_000 - 20, step * 1_000 - 10), (step * 1_000, step * 1_000 + 900))
    for number in range(100):
        # One in ten falls into one of the gaps of 100 ns.
        inside = number % 10 == 0
        stack = (LOAD, MAIN) if number % 20 == 0 else (MAIN,)
        export.python_sample(number * 1_000 + (950 if inside else 300), *stack)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "lines", *LINE) == [
        (*LOAD, None, "cpu", 5, 5_000),
        (*MAIN, None, "cpu", 5, 5_000),
    ]


def test_launches_of_autograd_are_those_of_the_line_that_waits_for_it(tmp_path):
    export = sample_gaps(loop(gap_ms=3, thread=7), BACKWARD, MAIN, gap_ms=3)
    export.call("cudaGetDevice", 0, 10)
    export.os_call("pthread_cond_wait", 0, 100 * MS)

    result = ask(ANALYSIS, export, tmp_path)

    inner = "torch.autograd.graph._engine_run_backward"
    assert rows(result, "lines", *LINE) == [(*MAIN, inner, "cpu", 57, 57 * MS)]


def test_a_sleep_has_a_finding_of_its_own(tmp_path):
    export = sample_gaps(loop(gap_ms=9), LOAD, MAIN, gap_ms=9)
    for step in range(20):
        export.os_call("clock_nanosleep", step * 10 * MS + 1_000_000, step * 10 * MS + 8_000_000)

    slept, worked = ask(ANALYSIS, export, tmp_path).findings[:2]

    assert slept.message == (
        "The GPU sat idle for 133 ms (19 gaps) while the CPU slept. "
        "All of it was at train.py:12 in get_batch."
    )
    assert slept.action.startswith("Remove the sleep")
    assert slept.time_at_stake_ns == 133 * MS
    assert (slept.subject.kind, slept.subject.file, slept.subject.line) == ("line", *LOAD[:2])
    assert worked.message == (
        "The GPU sat idle for 38.0 ms (19 gaps) while the CPU did other work than launching. "
        "All of it was at train.py:12 in get_batch."
    )
    assert worked.action.startswith("Take this CPU work out of the way")
    assert worked.time_at_stake_ns == 38 * MS


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("x.block_until_ready()", "Wait for results less often"),
        ("jax.block_until_ready(x)", "Wait for results less often"),
        ("ready = [x for x in queue if x.is_ready()]", "Take this CPU work out of the way"),
    ],
)
def test_a_wait_that_is_no_cuda_call_is_told_by_its_line(text, remedy, tmp_path):
    export = sample_gaps(loop(gap_ms=9), LOAD, MAIN, gap_ms=9).source_line(*LOAD[:2], text)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert text in finding.message
    assert finding.action.startswith(remedy)


def waits_in_jax(*in_gap, wait=(READ,), compiled=(COMPILE, STEP)) -> Export:
    """Each kernel ends while MAIN waits for its result; then the CPU is 4 ms at other lines."""
    export = loop(gap_ms=4)
    export.python_sample(100, *compiled, MAIN)
    for number in range(20 * 5):
        at = number % 5
        stack = (*wait, MAIN) if at == 0 else in_gap[min(at, len(in_gap)) - 1]
        export.python_sample(number * MS + MS // 2 + 200_000, *stack)
    return export


def test_idle_time_after_a_wait_for_jax_is_that_of_the_wait(tmp_path):
    result = ask(ANALYSIS, waits_in_jax((READ, MAIN), (STEP, MAIN)), tmp_path)

    [finding] = result.findings
    assert finding.message == (
        "The GPU sat idle for 76.0 ms (19 gaps) after the program waited for results of JAX. "
        "All of it was at train.py:40."
    )
    assert finding.action.startswith("Wait for results less often")
    inner = "jax._src.array._value"
    assert rows(result, "lines", *LINE) == [(*MAIN, inner, "result-wait", 76, 76 * MS)]


@pytest.mark.parametrize(
    ("export", "message"),
    [
        # Work of the program's own after the wait.
        (waits_in_jax((READ, MAIN), (LOAD, MAIN)), "while the CPU did other work"),
        # The GPU ran dry while the CPU was still launching.
        (waits_in_jax((STEP, MAIN), wait=(STEP,)), "waiting for the CPU to launch work"),
        # A line never seen to call JAX.
        (waits_in_jax((STEP, MAIN), compiled=(LOAD,)), "while the CPU did other work"),
    ],
    ids=["work", "no wait", "no JAX"],
)
def test_other_time_of_a_jax_program_is_not_that_of_the_wait(export, message, tmp_path):
    findings = ask(ANALYSIS, export, tmp_path).findings
    assert any(message in finding.message for finding in findings)


NONE = lines.joined([])
MADE_ON_THE_GPU = "Make the data on the GPU: pass device='cuda' to {}, which"


@pytest.mark.parametrize(
    ("kernel", "inner", "remedy"),
    [
        *(("at::native::fill", each, MADE_ON_THE_GPU.format(each))
          for each in ("randn", "torch.randn", "rand_like", "torch.zeros", "arange")),
        ("at::native::fill", "torch.load", "Take this CPU work"),
        ("at::native::fill", "random_crop", "Take this CPU work"),
        ("add", "randn", "Take this CPU work"),
    ],
)  # fmt: skip
def test_tensors_that_the_cpu_fills_are_to_be_made_on_the_gpu(kernel, inner, remedy, tmp_path):
    trace = Export().launch((0, 1), (2, 3), name=f"void {kernel}<float>(int)").load(tmp_path)
    line = SimpleNamespace(inner=inner, source=None)

    assert remedies.other_work_remedy(trace, line, NONE).startswith(remedy)


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ("b = Variable(torch.zeros(*x.size())).cuda()", "torch.zeros"),
        ("x = torch.randn(n, 4).to(device)", "torch.randn"),
        ("msgs = torch.zeros(n,", "torch.zeros"),
        # It may stand for data that the program loads.
        ("x = torch.randn(BATCH, WIDTH, generator=generator)", None),
        ("x = torch.zeros(n, device=device)", None),
        ("x = load(path).cuda()", None),
    ],
)
@pytest.mark.parametrize("inner", [None, "torch.load"])
def test_a_line_that_makes_what_it_copies_is_to_make_it_on_the_gpu(source, call, inner, tmp_path):
    name = "void at::native::fill<float>(int)"
    trace = Export().launch((0, 1), (2, 3), name=name).load(tmp_path)
    line = SimpleNamespace(inner=inner, source=source)

    expected = MADE_ON_THE_GPU.format(call) if call and not inner else "Take this CPU work"
    assert remedies.other_work_remedy(trace, line, NONE).startswith(expected)


def test_an_optimizer_that_launches_nothing_updates_on_the_cpu(tmp_path):
    [finding] = ask(
        ANALYSIS, sample_gaps(loop(gap_ms=19), ADAM, MAIN, gap_ms=19), tmp_path
    ).findings
    assert finding.message == (
        "The GPU sat idle for 361 ms (19 gaps) while the CPU did other work than launching. "
        "All of it was at train.py:40, calling torch.optim.adam._single_tensor_adam."
    )
    assert finding.action.startswith("Keep these parameters and their optimizer on the GPU.")


@pytest.mark.parametrize(
    ("gap_ms", "calls_per_ms"), [(9, 0), (19, 2)], ids=["short gaps", "many calls"]
)
def test_a_library_between_its_launches_is_late(gap_ms, calls_per_ms, tmp_path):
    export = sample_gaps(loop(gap_ms=gap_ms), ADAM, MAIN, gap_ms=gap_ms)
    for number in range(20 * (1 + gap_ms) * calls_per_ms):
        start = number * MS // calls_per_ms
        export.call("cudaGetDevice", start, start + 10)
    [finding] = ask(ANALYSIS, export, tmp_path).findings
    assert "waiting for the CPU to launch work" in finding.message
    assert finding.action.startswith("Launch less often")


def test_a_function_is_called_mostly_where_it_is_not_all_of_the_line(tmp_path):
    export = loop(gap_ms=4)
    for number in range(100):
        stack = (BACKWARD, MAIN) if number % 5 in (1, 2, 3) else (LINEAR, MAIN)
        export.python_sample(number * MS + MS // 2, *stack)
    finding = ask(ANALYSIS, export, tmp_path).findings[0]
    assert finding.message.endswith("All of it was at train.py:40, mostly in the backward pass.")


def passes(forward, *, steps=20, around=(), updates=0, backward=None) -> Export:
    """Steps of a forward pass, sampled at these stacks in turn, a backward pass, and updates.

    A kernel of 50 µs is launched at the end of each ms.
    """
    export, at = Export(), 0
    for number in range(10 * steps):
        end = (number + 1) * MS
        export.launch((end - 80_000, end - 75_000), (end - 70_000, end - 20_000))
        place = number % 10
        if 1 <= place <= 4:
            stack, at = forward[at % len(forward)], at + 1
        else:
            stack = (ADAM, ("/work/train.py", 43, "<module>")) if place > 9 - updates else None
            stack = stack or backward or (BACKWARD, MAIN)
        export.python_sample(end - 200_000, *stack, *around)
    return export


NET = ("/work/train.py", 38, "<module>")
LAYERS = [("/work/model.py", line, "forward") for line in (7, 8, 9)]
EXPERTS = ("/work/model.py", 20, "route")
CHECK = ("/work/train.py", 39, "<module>")
RUN = ("/work/cli.py", 5, "main")


@pytest.mark.parametrize(
    ("forward", "of"),
    [
        ([(LINEAR, NET)], "train.py:38"),
        ([(LINEAR, each, NET) for each in LAYERS], "train.py:38"),
        # The innermost line with half of it, though the backward pass is longer than each.
        ([(LINEAR, each, EXPERTS, NET) for each in LAYERS], "model.py:20 in route"),
        ([(LINEAR, LAYERS[0], NET)] * 3 + [(LINEAR, LAYERS[1], NET)], "model.py:7 in forward"),
        # Called by an evaluation as well.
        (
            [(LINEAR, each, EXPERTS, line) for line in (NET, NET, CHECK) for each in LAYERS],
            "model.py:20 in route",
        ),
        # Two lines that launch alike, with none around both.
        ([(LINEAR, ("/work/train.py", line, "<module>")) for line in (36, 37, 38)], None),
    ],
)
@pytest.mark.parametrize("around", [(), (RUN,)], ids=["script", "main"])
@pytest.mark.parametrize("updates", [0, 1])
def test_a_backward_pass_is_told_with_the_line_of_the_forward_pass_that_asks_for_it(
    forward, of, around, updates, tmp_path
):
    export = passes(forward, around=around, updates=updates)

    finding = ask(ANALYSIS, export, tmp_path).findings[0]

    said = "in the backward pass" + (f" of {of}." if of else ".")
    assert said in finding.message
    line = of.split(" ")[0] if of else "train.py:40"
    assert finding.subject.name == line
    assert rows(ask(ANALYSIS, export, tmp_path), "lines", "line")[0] == (40,)


@pytest.mark.parametrize("largest", range(4))
@pytest.mark.parametrize("function", ["train", "<module>"])
@pytest.mark.parametrize("inside", ["library", "own line", "own lines"])
def test_of_several_networks_the_line_of_the_largest_is_named_with_its_share(
    tmp_path, largest, function, inside
):
    """An actor, critics and their targets, trained in one function; another one acts."""
    step = () if function == "<module>" else (("/work/main.py", 4, "<module>"),)
    lines = {"library": 0, "own line": 1, "own lines": 3}[inside]

    def network(number):
        """The stacks of its layers."""
        call = ("/work/agent.py", 10 + number, function)
        layers = [(("/work/nets.py", 10 * number + 5 + line, "forward"),) for line in range(lines)]
        return [(LINEAR, *layer, call, *step) for layer in layers or [()]]

    each = [network(number) for number in (0, 1, 2, 3, largest, largest)]
    stacks = [stack for number in range(max(lines, 1)) for of in each for stack in of[number:][:1]]
    acts = (LINEAR, ("/work/agent.py", 30, "act"), ("/work/main.py", 3, "<module>"))
    backward = (BACKWARD, ("/work/agent.py", 20, function), *step)
    export = passes([*stacks, acts], steps=30, backward=backward)

    finding = ask(ANALYSIS, export, tmp_path).findings[0]

    # The innermost line that launches half of what the network does.
    place = f"nets.py:{10 * largest + 5}" if inside == "own line" else f"agent.py:{10 + largest}"
    share = finding.evidence.values["asks_pct"]
    assert f"of the launches of forward passes, more are made at {place}" in finding.message
    assert f"than at any other line ({share:.1f} %)" in finding.message
    assert finding.subject.name == place
    assert 35 < share < 52


@pytest.mark.parametrize("most", range(3))
@pytest.mark.parametrize("outer", [(), (EXPERTS,), (EXPERTS, ("/work/net.py", 3, "forward"))])
@pytest.mark.parametrize(
    ("inner", "below"),
    [
        ([()] * 3, "model.py:{} in forward"),
        # Its function has half of the launches, those below have not.
        (
            [(("/work/ops.py", number, f"op{number}"),) for number in (1, 2, 3)],
            "model.py:{} in forward",
        ),
        ([(("/work/ops.py", number, "op"),) for number in (7, 8, 9)], "ops.py:{} in op"),
    ],
)
def test_the_line_that_launches_most_below_is_named(tmp_path, most, outer, inner, below):
    """Its function is the innermost with half of the launches, though no line of it has half."""
    stacks = [(LINEAR, *inner[each], LAYERS[each], *outer, NET) for each in (0, 1, 2, most)]
    # A loss beside it.
    export = passes([*stacks, (LINEAR, ("/work/train.py", 37, "<module>"))])

    finding = ask(ANALYSIS, export, tmp_path).findings[0]

    place = below.format(LAYERS[most][1])
    assert finding.message.endswith(f", where {place} launches most.")


@pytest.mark.parametrize("library", ["torchsde/_core/euler.py", "diffrax/_solver.py", None])
@pytest.mark.parametrize(
    ("own", "calls", "told"),
    [
        # Samples in turn: in the library itself, and in the functions f, g and h that it calls.
        (3, (1, 3, 1), "g"),
        (4, (3, 1, 1), "f"),
        (0, (2, 2, 2), None),
        (20, (1, 2, 1), None),
        (12, (1, 1, 1), None),
    ],
)
def test_below_the_call_of_a_solver_the_function_of_the_program_that_launches_most_is_named(
    tmp_path, library, own, calls, told
):
    """No function has half of the launches; the share of one that stands out is said."""
    solver = ((f"{SITE}/{library}", 145, "integrate"),) if library else ()
    each = {name: (f"/work/{name}.py", 60 + at, name) for at, name in enumerate("fgh")}
    stacks = [(LINEAR, *solver, EXPERTS, NET)] * own
    for frame, number in zip(each.values(), calls, strict=True):
        stacks += [(LINEAR, frame, *solver, EXPERTS, NET)] * number
    stacks = [stacks[at] for at in sorted(range(len(stacks)), key=lambda at: at * 7 % 11)]

    finding = ask(ANALYSIS, passes(stacks, steps=40), tmp_path).findings[0]

    said = f", where {told}.py:{each[told][1]} in {told} launches most (" if told else "."
    assert f"in the backward pass of model.py:20 in route{said}" in finding.message
    if told:
        share = 100 * calls[ord(told) - ord("f")] / len(stacks)
        assert finding.evidence.values["below_pct"] == pytest.approx(share, abs=3)


@pytest.mark.parametrize("unknown", [(NET[0], 0, "run"), ("<string>", 0, "<module>")])
@pytest.mark.parametrize("share", [0, 1, 2])
def test_a_frame_without_a_line_is_not_told_as_one(tmp_path, unknown, share):
    export = passes([(LINEAR, NET)] * share + [(LINEAR, unknown)])

    messages = [each.message for each in ask(ANALYSIS, export, tmp_path).findings]

    assert messages
    assert not any(":-" in text for text in messages)


def test_an_average_of_weights_asks_for_no_backward_pass(tmp_path):
    """It launches more than the forward pass, between the optimizer's step and the next one."""
    average = (LINEAR, ("/work/train.py", 44, "<module>"))
    export = passes([average, average, average, (LINEAR, NET)])
    for at in range(0, 200 * MS, 10 * MS):
        # The first launch of a step is of the backward pass of the one before.
        export.range("traceview:range:optimizer", at, at + MS)
        export.range("traceview:range:forward Net", at + 4 * MS, at + 5 * MS)

    finding = ask(ANALYSIS, export, tmp_path).findings[0]

    assert "in the backward pass of train.py:38." in finding.message


def test_a_rollout_asks_for_no_backward_pass(tmp_path):
    """It launches more than all forward passes, but is one pass between two backward passes."""
    export = passes([(LINEAR, NET)], steps=10)
    rollout = (LINEAR, ("/work/train.py", 12, "act"), ("/work/train.py", 35, "<module>"))
    for number in range(100, 250):
        end = (number + 1) * MS
        export.launch((end - 80_000, end - 75_000), (end - 70_000, end - 20_000))
        export.python_sample(end - 200_000, *rollout)
    for number in range(250, 350):
        end, place = (number + 1) * MS, number % 10
        export.launch((end - 80_000, end - 75_000), (end - 70_000, end - 20_000))
        export.python_sample(
            end - 200_000, *((LINEAR, NET) if 1 <= place <= 4 else (BACKWARD, MAIN))
        )

    messages = [each.message for each in ask(ANALYSIS, export, tmp_path).findings]

    assert not any("in the backward pass of train.py:12" in text for text in messages)
    assert not any("in the backward pass of train.py:35" in text for text in messages)


def test_a_derivative_in_a_forward_pass_is_asked_for_by_its_own_line(tmp_path):
    grad = (f"{SITE}/torch/autograd/__init__.py", 532, "grad")
    divergence = ("/work/model.py", 16, "divergence")
    export = passes([(BACKWARD, grad, divergence, NET)])

    finding = ask(ANALYSIS, export, tmp_path).findings[0]

    assert "at train.py:40, in the backward pass of model.py:16 in divergence." in finding.message
    assert finding.subject.name == "model.py:16"


@pytest.mark.parametrize("function", ["<module>", "train"])
@pytest.mark.parametrize("source", ["for batch in loader:", None])
def test_loading_in_the_launching_process_is_first_at_the_line_that_asks_for_batches(
    function, source, tmp_path
):
    """The loader is changed there; the data set may be shared, or a library's."""
    data_set = ("/work/data.py", 53, "__getitem__")
    loader = (LOADER[0], 741, "__next__")
    asks = (*MAIN[:2], function)
    export = sample_gaps(loop(gap_ms=9), data_set, FETCH, loader, asks, gap_ms=9)
    if source:
        export.source_line(*MAIN[:2], source)

    finding = ask(ANALYSIS, export, tmp_path).findings[0]

    place = "train.py:40" + (f" in {function}" if function == "train" else "")
    place += f" (`{source}`)" if source else ""
    assert f"loaded data itself for the batches of {place}. " in finding.message
    assert finding.message.endswith("it was at data.py:53 in __getitem__.")
    assert finding.subject.name == "train.py:40"


def test_a_pause_of_a_backward_pass_that_came_once_is_told_without_the_forward_pass(tmp_path):
    export = passes([(LINEAR, NET)])
    export.launch((599 * MS, 599 * MS + 5_000), (599 * MS + 10_000, 600 * MS))
    for number in range(200, 599):
        export.python_sample(number * MS + MS // 2, BACKWARD, MAIN)

    finding = ask(ANALYSIS, export, tmp_path).findings[0]

    assert "at train.py:40" in finding.message
    assert "in the backward pass" in finding.message
    assert "train.py:38" not in finding.message
    assert finding.subject.name == "train.py:40"


def test_a_loop_that_waits_for_data_too_names_no_one_place_for_its_launches(tmp_path):
    """The range with most late idle time is that of the wait, which has a finding of its own."""
    export = Export()
    for step in range(20):
        start = step * 20 * MS
        for number in range(5):
            at = start + (10 + 2 * number) * MS
            export.launch((at - 5_000, at - 3_000), (at, at + MS))
        export.range("data loading", start, start + 10 * MS - 100_000)
        for number in range(20):
            stack = (LOADER, MAIN) if number < 10 else (LINEAR, LAYERS[number % 3], NET)
            export.python_sample(start + number * MS + MS // 2, *stack)

    found = ask(ANALYSIS, export, tmp_path).findings[:2]
    late, waits = sorted(found, key=lambda each: not each.general)

    assert "waited for the DataLoader" in waits.message
    assert not waits.general
    assert "waiting for the CPU to launch work" in late.message
    assert late.general


@pytest.mark.parametrize("pauses", [(10,), (10, 15), (5, 10, 15)])
def test_work_that_came_once_beside_waits_as_long_may_not_come_again(pauses, tmp_path):
    export = Export()
    for step in range(20):
        start = step * 40 * MS
        export.launch((start - 5_000, start - 3_000), (start, start + MS))
        for number in range(1, 40):
            stack = (LOAD, MAIN) if step in pauses else (LOADER, MAIN)
            export.python_sample(start + number * MS + MS // 2, *stack)

    found = ask(ANALYSIS, export, tmp_path).findings

    [work] = [each for each in found if "did other work than launching" in each.message]
    once = len(pauses) == 1
    assert work.action.startswith("If ") == once
    assert (work.severity == "high") <= (not once)


def test_work_in_several_lines_of_a_function_is_one_finding(tmp_path):
    export = loop(gap_ms=9)
    for number in range(200):
        line = 12 if number % 3 else 14
        stack = (("/work/train.py", line, "get_batch"), MAIN) if number % 10 else (MAIN,)
        export.python_sample(number * MS + MS // 2, *stack)

    [worked] = ask(ANALYSIS, export, tmp_path).findings

    assert worked.message == (
        "The GPU sat idle for 171 ms (19 gaps) while the CPU did other work than launching. "
        "All of it was in get_batch, 114 ms at train.py:12."
    )
    assert (worked.subject.file, worked.subject.line) == ("/work/train.py", 12)


def test_a_program_without_steps_is_told_of_no_loop(tmp_path):
    worked = ask(ANALYSIS, sample_gaps(loop(gap_ms=9), LOAD, MAIN, gap_ms=9), tmp_path).findings[0]
    assert worked.action.startswith(
        "Take this CPU work out of the way: do it earlier or later, or on another thread"
    )


def test_lines_outside_of_functions_have_a_finding_each(tmp_path):
    export = loop(gap_ms=9)
    for number in range(200):
        line = 41 if number % 3 else 42
        export.python_sample(number * MS + MS // 2, ("/work/train.py", line, "<module>"))

    found = ask(ANALYSIS, export, tmp_path).findings

    assert [each.subject.line for each in found] == [41, 42]


def test_functions_that_nsys_could_not_name_are_not_named(tmp_path):
    nameless = ("/work/train.py", 12, "[Unknown]"), (f"{SITE}/jax/_src/pjit.py", 91, "[Unknown]")
    export = sample_gaps(loop(gap_ms=4), nameless[1], nameless[0], MAIN, gap_ms=4)

    late = ask(ANALYSIS, export, tmp_path).findings[0]

    assert late.message.endswith("All of it was at train.py:12, calling jax._src.pjit.")


def test_time_that_other_findings_count_is_not_counted_again(tmp_path):
    export = loop(gap_ms=4)
    for number in range(100):
        stack = (LINEAR, MAIN) if number % 5 in (1, 2) else (LOAD, MAIN)
        export.python_sample(number * MS + MS // 2, *stack)

    work, late = ask(ANALYSIS, export, tmp_path).findings[:2]

    assert work.time_at_stake_ns == late.time_at_stake_ns == 38 * MS
    assert late.message == (
        "The GPU sat idle for 38.0 ms (19 gaps) waiting for the CPU to launch work, not counting "
        "38.0 ms of other CPU work. All of it was at train.py:40, calling "
        "torch.nn.modules.linear.forward."
    )
    assert late.action.startswith("Launch less often")


def test_idle_time_without_samples_is_noted(tmp_path):
    export = loop(gap_ms=4, steps=3)
    for number in (1, 2, 3, 4):
        export.python_sample(number * MS + 500_000, LOAD, MAIN)

    assert ask(ANALYSIS, export, tmp_path).notes[-1] == (
        "Python samples show the line for 4.00 ms of the 8.00 ms that the GPU sat idle waiting for "
        "the CPU."
    )


def test_wrappers_of_the_recorder_are_no_lines_of_the_program(tmp_path):
    ours = ("/work/traceview/recorders/injected/traceview_injected/sync_torch.py", 102, "method")
    export = sample_gaps(loop(gap_ms=4), LINEAR, ours, LOAD, MAIN, gap_ms=4)
    assert rows(ask(ANALYSIS, export, tmp_path), "lines", "file", "line")[0] == LOAD[:2]


def test_a_finding_without_a_line_says_how_to_record_one(unpack, tmp_path):
    def remedies(trace):
        found = traceview.analyze(trace)["gpu-idle"].findings
        return [each.remedy for each in found if "record again" in each.remedy]

    [said] = remedies(traceview.load(unpack("training")))
    assert said.endswith(" To see the lines, record again with traceview record.")
    # The CPU runs ahead there.
    assert not remedies(traceview.load(unpack("mlp_nosync")))
    assert not remedies(sample_gaps(loop(gap_ms=4), LOAD, MAIN, gap_ms=4).load(tmp_path))


def test_a_long_pause_with_samples_is_told_by_its_line_though_a_bit_of_it_has_none(tmp_path):
    """A pause of 300 ms, then a call that allocates, and 0.7 ms until the next launch."""
    export, now = Export(), 0
    for step in range(200):
        if step == 100:
            for at in range(5, 300, 10):
                export.python_sample(now + at * MS, LOAD, MAIN)
            now += 300 * MS
            export.call("cudaMalloc", now, now + 2 * MS)
            now += 2 * MS + 700_000
        export.launch((now, now + 5_000), (now + 6_000, now + MS))
        now += 1_020_000

    first, *_ = ask(ANALYSIS, export, tmp_path).findings

    assert first.message == (
        "The GPU sat idle for 300 ms (1 gap) while the CPU did other work than launching. All of "
        "it was at train.py:12 in get_batch."
    )


HELPER, EXPERT = ("/work/model.py", 12, "linear"), ("/work/model.py", 20, "forward")
LAYER = ("/work/model.py", 15, "__call__")


@pytest.mark.parametrize(
    ("of_ten", "layers", "told"),
    [
        # Of each ten samples, those in the helper and in the line that calls it.
        ((4, 3), (LAYER,), " 12.7 ms of that was at model.py:12 in linear. 22.3 ms passed in or "
         "under model.py:20 in forward."),
        ((5, 2), (LAYER,), " 15.9 ms of that was at model.py:12 in linear."),
        # The call of the function alone, or a line around everything, tells nothing.
        ((4, 3), (), " 12.7 ms of that was at model.py:12 in linear."),
        ((4, 6), (LAYER,), " 19.0 ms of that was at model.py:20 in forward."),
    ],
)  # fmt: skip
def test_a_helper_is_told_with_the_line_that_most_time_passes_through(
    of_ten, layers, told, tmp_path
):
    export, now = Export(), 0
    for step in range(300):
        export.launch((now, now + 5_000), (now + 6_000, now + 30_000))
        now += 130_000
        place = step % 10
        stack = (HELPER, *layers, EXPERT, MAIN) if place < of_ten[0] else (MAIN,)
        stack = (EXPERT, MAIN) if of_ten[0] <= place < sum(of_ten) else stack
        export.python_sample(now - 50_000, *stack)

    first, *_ = ask(ANALYSIS, export, tmp_path).findings

    assert first.message == (
        "The GPU sat idle for 31.7 ms (299 gaps) waiting for the CPU to launch work." + told
    )

"""Communication: exposed time against plain loops, collectives paired over GPUs, who is late."""

from dataclasses import replace

import numpy as np
import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.base.findings import Subject
from traceview.base.tables import NULL
from traceview.traces.analyses.communication import ANALYSIS, known_rates
from traceview.traces.facts.collectives import kind_of_kernel

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
MS = 1_000_000


def two_gpus(*collectives: tuple[tuple[int, int], tuple[int, int]], lost: int = 0) -> Export:
    """Collectives of GPU 0 and GPU 1, without the first `lost` of GPU 1; and work before each."""
    export = Export()
    for number, spans in enumerate(collectives):
        for device, (start, end) in enumerate(spans):
            at = {"device": device, "process": device + 1}
            if device == 0 or number >= lost:
                export.kernel_without_launch((start, end), name=ALL_REDUCE, stream=20, **at)
            export.kernel_without_launch((start - 100, start), name="gelu", **at)
    return export


def test_communication_hidden_by_compute(tmp_path):
    # all-reduce 100─────────300 and 350──400; gelu 150──250, on another stream.
    export = (
        Export()
        .kernel_without_launch((100, 300), name=ALL_REDUCE, stream=20)
        .kernel_without_launch((350, 400), name=ALL_REDUCE, stream=20)
        .kernel_without_launch((150, 250), name="gelu")
        .kernel_without_launch((MS, MS + 50), name=ALL_REDUCE, device=1, process=2)
    )

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("device_id", "kind", "calls", "total_ns", "hidden_ns", "exposed_ns", "wait_ns")
    assert rows(result, "collectives", *figures) == [
        (0, "all-reduce", 2, 250, 100, 150, None),
        (1, "all-reduce", 1, 50, 0, 50, None),
    ]
    [finding] = result.findings
    assert finding.subject == Subject("device", "GPU 0")
    assert finding.time_at_stake_ns == 150
    assert finding.message == (
        "GPU 0 communicates for 250 ns, 150 ns of it without computing, most of it in all-reduce "
        "(150 ns in 2 calls). No other work is left to overlap it with."
    )
    assert finding.action.startswith("Exchange fewer bytes")
    assert finding.share_of_step_pct == pytest.approx(50.0)


def test_copies_between_gpus_have_bytes_and_a_rate(tmp_path):
    ends = {"kind": "P2P", "source": "device", "destination": "device"}
    export = Export().copy((0, 1), (10, 110), bytes=5000, **ends)

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("kind", "calls", "bytes", "bus_bytes_per_s", "exposed_ns")
    assert rows(result, "collectives", *figures) == [("peer-copy", 1, 5000, 50_000_000_000, 100)]


def test_the_gpu_that_arrives_last_is_named_with_its_cause(tmp_path):
    """GPU 1 arrives 2, 3 and 4 ms later than GPU 0, because it computes as much longer."""
    export = Export()
    begin = 0
    for late in (2 * MS, 3 * MS, 4 * MS):
        start, end = begin + 10 * MS, begin + 10 * MS + late + MS
        for device, arrives in enumerate((start, start + late)):
            at = {"device": device, "process": device + 1}
            export.kernel_without_launch((begin + MS, arrives), name="gelu", **at)
            export.kernel_without_launch((arrives, end + device), name=ALL_REDUCE, **at)
        begin = end + MS

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("device_id", "group", "total_ns", "wait_ns")
    assert rows(result, "collectives", *figures) == [
        (0, "0, 1", 12 * MS, 9 * MS - 3),
        (1, "0, 1", 3 * MS + 3, 0),
    ]
    assert rows(result, "ranks", "rank", "wait_ns", "late_ns", "cause") == [
        (0, 9 * MS - 3, 0, None),
        (1, 0, 9 * MS - 3, "gpu-work"),
    ]
    [finding] = result.findings
    assert finding.message.endswith("9.00 ms of it waits for GPU 1, which works longer in between.")
    assert finding.action == "Give GPU 1 less work per step, or the other GPUs more."


def test_a_gpu_that_is_idle_longer_is_late_for_another_reason(tmp_path):
    export = Export()
    for step in range(4):
        start = 20 * MS * step
        for device, arrives in enumerate((start + 5 * MS, start + 9 * MS)):
            at = {"device": device, "process": device + 1}
            export.kernel_without_launch((start, start + 5 * MS), name="gelu", **at)
            export.kernel_without_launch((arrives, start + 10 * MS), name=ALL_REDUCE, **at)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranks", "cause") == [(None,), ("gpu-idle",)]
    [finding] = result.findings
    assert finding.action == (
        "Look at why GPU 1 is idle before it communicates (gpu-idle): the other GPUs wait for it."
    )


def test_a_window_that_cuts_between_the_two_kernels_of_a_collective(tmp_path):
    spans = [((t, t + 100), (t + 40, t + 101)) for t in (MS, 3 * MS, 4 * MS, 6 * MS, 9 * MS)]

    result = ask(ANALYSIS, two_gpus(*spans, lost=1), tmp_path)

    assert rows(result, "collectives", "device_id", "calls", "wait_ns") == [
        (0, 5, 4 * 39),
        (1, 4, 0),
    ]


def test_collectives_that_do_not_end_together_are_not_of_one_group(tmp_path):
    """Two pairs of GPUs, each with its own group, of which the recording has one GPU each."""
    spans = [((t, t + 100), (t + MS, t + MS + 100)) for t in (10 * MS, 20 * MS, 30 * MS, 41 * MS)]

    result = ask(ANALYSIS, two_gpus(*spans), tmp_path)

    assert rows(result, "collectives", "group", "wait_ns") == [(None, None), (None, None)]
    assert "Which GPU waits for which is unknown" in result.notes[1]


def test_two_machines_without_a_common_clock(tmp_path):
    """Their ends are a second apart, always by the same time."""
    export = Export()
    for step in range(6):
        start = 10 * MS * step + step**2 * MS
        for device, (process, arrives) in enumerate(((1, 0), (101, 300))):
            at = {"device": device, "process": process}
            clock = 1000 * MS * device
            span = (start + arrives + clock, start + 1000 + clock)
            export.kernel_without_launch(span, name=ALL_REDUCE, **at)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "collectives", "device_id", "wait_ns") == [(0, 6 * 300), (1, 0)]


def test_torchs_range_names_what_nccl_only_calls_send_and_receive(tmp_path):
    export = (
        Export()
        .range("nccl:all_to_all, op_id = 7", 0, 10)
        .launch((1, 2), (20, 30), name=SEND_RECV)
        .launch((11, 12), (40, 50), name=SEND_RECV)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert sorted(rows(result, "collectives", "kind")) == [("all-to-all",), ("send-receive",)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float", "all-reduce"),
        ("ncclDevKernel_AllGather_RING_LL", "all-gather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce-scatter"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclDevKernel_SendRecv", "send-receive"),
        ("cross_device_reduce_1stage", "all-reduce"),
        ("nvshmemi_proxy", "nvshmemi_proxy"),
    ],
)
def test_kinds(name, kind):
    assert kind_of_kernel(name) == kind


def test_a_recording_of_one_gpu_without_communication(tmp_path):
    result = ask(ANALYSIS, Export().launch((0, 1), (10, 20), name="gelu"), tmp_path)

    assert not result.findings
    assert not len(result.tables["ranks"])
    assert result.notes == ("No data was exchanged between GPUs.",)


@pytest.mark.parametrize("seed", range(20))
def test_exposed_time_against_counting_every_nanosecond(tmp_path, seed):
    random = np.random.default_rng(seed)
    export = Export()
    hidden = {device: set() for device in (0, 1)}
    busy = {device: set() for device in (0, 1)}
    total = dict.fromkeys((0, 1), 0)
    for _ in range(60):
        device, start = int(random.integers(2)), int(random.integers(2000))
        end = start + int(random.integers(1, 80))
        communicates = bool(random.integers(2))
        name = ALL_REDUCE if communicates else "gelu"
        where = {"device": device, "process": device + 1, "stream": int(random.integers(7, 10))}
        export.kernel_without_launch((start, end), name=name, **where)
        (busy if communicates else hidden)[device].update(range(start, end))
        total[device] += (end - start) * communicates

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("device_id", "total_ns", "hidden_ns", "exposed_ns")
    found = {}
    for device, *numbers in rows(result, "collectives", *figures):
        # Streams of a group are rows of their own only where they are paired.
        found.setdefault(device, []).append(numbers)
    for device, (numbers, *others) in found.items():
        if not others:
            under = len(busy[device] & hidden[device])
            assert numbers == [total[device], under, len(busy[device]) - under]
    exposed = {device: len(busy[device] - hidden[device]) for device in busy}
    assert dict(rows(result, "ranks", "device_id", "exposed_ns")) == exposed


def looped(*lengths_ms, steps=True):
    """Steps of all-reduces that take so long, then compute; the first of many is warm-up."""
    export, at = Export(), 0
    for number, of_step in enumerate(lengths_ms):
        begin = at
        for length in of_step:
            call = (at, at + 1)
            export.launch(call, (at + 10, at + 10 + length * MS), name=ALL_REDUCE)
            at += 10 + length * MS
        export.launch((at, at + 1), (at + 10, at + 4 * MS), name="gelu")
        at += 5 * MS
        if steps:
            export.range(f"step {number}", begin, at)
    return export


@pytest.mark.parametrize("name", ["run.rank0.sqlite", "run.sqlite"])
def test_a_rank_without_the_others_most_likely_waits(tmp_path, name):
    """Of five steps after warm-up the all-reduces take 1, 5, 5, 5 and 5 ms: 16 beyond the first."""
    trace = looped([9], [1], [5], [5], [5], [5]).load(tmp_path)
    [finding] = ANALYSIS.run(replace(trace, path=str(tmp_path / name))).findings

    assert finding.message == (
        "GPU 0 communicates for 21.0 ms without computing, most of it in all-reduce "
        "(21.0 ms in 5 calls). 16.0 ms of it is more than the fastest calls at the same place of "
        "a step take: most likely waiting for ranks that this recording does not hold."
    )
    assert ("traceview report run.rank*.sqlite" in finding.action) == ("rank0" in name)
    assert "traceview report" in finding.action


@pytest.mark.parametrize(
    ("lengths", "steps"),
    [
        # Two messages per step, of other sizes.
        ([[1, 5]] * 6, True),
        # One message per call, of sizes that nobody told.
        ([[1], [1], [5], [5], [5], [5]], False),
    ],
)
def test_messages_of_unknown_size_are_not_alike(tmp_path, lengths, steps):
    [finding] = ANALYSIS.run(looped(*lengths, steps=steps).load(tmp_path)).findings
    assert "waiting" not in finding.message


def test_equal_collectives_of_one_rank_do_not_wait(tmp_path):
    export = Export()
    for number in range(5):
        start = number * 10 * MS
        export.kernel_without_launch((start, start + 5 * MS), name=ALL_REDUCE)
    [finding] = ask(ANALYSIS, export, tmp_path).findings
    assert "waiting" not in finding.message


def test_a_rate_that_no_integer_holds_is_cut():
    amount, time = np.array([1 << 62, NULL, 8]), np.array([1, 1, 0])
    assert known_rates(amount, time).tolist() == [1 << 62, NULL, NULL]


@pytest.mark.parametrize("kind", ["AllGather", "AllReduce"])
@pytest.mark.parametrize(
    ("shown", "of_fsdp"),
    [
        ("FSDP::pre_forward (blocks.3)", True),
        ("FullyShardedDataParallel.forward", True),
        ("fsdp::all_gather_copy_in", True),
        ("/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", True),
        ("/site-packages/torch/distributed/tensor/parallel/style.py", False),
        ("DistributedDataParallel.forward", False),
        ("DeepSpeedZeroOptimizer.step", False),
        ("my_fsdp_like_gather", False),
    ],
)
def test_fsdp_is_named_where_names_show_it(tmp_path, kind, shown, of_fsdp):
    """Tensor parallelism, sequence parallelism and ZeRO gather as well."""
    export = Export()
    for start in range(0, 40 * MS, 4 * MS):
        name = f"ncclDevKernel_{kind}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        export.launch((start, start + 10), (start + 20, start + 3 * MS), name=name, stream=20)
        export.launch((start + 12, start + 15), (start + 3 * MS, start + 4 * MS), name="gemm")
        if shown.startswith("/"):
            export.python_sample(start + 5, (shown, 9, "unshard"), ("/home/me/train.py", 3, "main"))
        else:
            export.range(shown, start, start + 30)
    [finding] = ask(ANALYSIS, export, tmp_path).findings
    assert ("FSDP" in finding.action) is (of_fsdp and kind == "AllGather")


@pytest.mark.parametrize("lost", [0, 3, 5])
@pytest.mark.parametrize("kind", ["SendRecv", "AllReduce_Sum_f32_RING_LL"])
def test_of_lost_work_no_communication_is_known_to_be_exposed(tmp_path, lost, kind):
    """It may have hidden the communication, on GPUs of which nothing is left."""
    export, at = Export(), 0
    for number in range(60):
        took = MS if number % 2 else 100_000
        begin = at + 10_000 + took
        export.launch((at, at + 5_000), (at + 6_000, begin - 4_000), name="stencil")
        for each in range(lost):
            export.launch_without_kernel((at + 6_000 + 500 * each, at + 6_400 + 500 * each))
        span = begin, begin + took
        export.launch((at + 10_000, at + 15_000), span, name=f"ncclDevKernel_{kind}(args)")
        at = begin + took + 10_000

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert "communicates for" in finding.message
    assert "does not hold" not in finding.message
    assert (finding.severity == "info") is (lost > 0)
    assert ("synchronize before it does" in finding.action) is (lost > 0)

"""The analysis `memory-copies`: copies by direction and host memory, and those no kernel hides."""

import numpy as np
import pytest

import traceview
from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.base.findings import Subject, filled, sentence
from traceview.traces.analyses import wording
from traceview.traces.analyses.gpu_idle import ANALYSIS as IDLE
from traceview.traces.analyses.memory_copies import ANALYSIS
from traceview.traces.analyses.sync_stalls import ANALYSIS as SYNCS
from traceview.traces.analyses.verdict import scoreboard

MS = 1_000_000


def test_copies_by_direction_and_host_memory(tmp_path):
    export = (
        Export()
        .copy((0, 1), (10, 110), bytes=1000, kind="H2D", source="pageable")
        .copy((1, 2), (110, 210), bytes=3000, kind="H2D", source="pageable")
        .copy((2, 3), (210, 260), bytes=5000, kind="H2D", source="pinned")
        .copy((3, 4), (260, 270), kind="D2H", source="device", destination="pinned", bytes=8)
        .copy((4, 5), (270, 275), kind="D2D", source="device", destination="device", bytes=100)
    )

    result = ask(ANALYSIS, export, tmp_path)

    figures = ("direction", "host_memory", "calls", "bytes", "total_ns", "bytes_per_s")
    assert rows(result, "copies", *figures) == [
        ("H2D", "pageable", 2, 4000, 200, 20_000_000_000),
        ("H2D", "pinned", 1, 5000, 50, 100_000_000_000),
        ("D2H", "pinned", 1, 8, 10, 800_000_000),
        ("D2D", None, 1, 100, 5, 20_000_000_000),
    ]
    assert result.findings[0].time_at_stake_ns == 200


def test_copies_against_the_link(tmp_path):
    """64 GB/s one way on an H200: 32 GB/s are half of it. No link is between a GPU and itself."""
    export = (
        Export()
        .copy((0, 1), (10, 110), bytes=3200, kind="H2D", source="pinned")
        .copy((1, 2), (200, 300), bytes=1600, kind="D2H", source="device", destination="pinned")
        .copy((2, 3), (300, 400), bytes=10, kind="D2D", source="device", destination="device")
        .copy((3, 4), (400, 500), bytes=10, kind="P2P", source="device", destination="device")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "copies", "direction", "link_pct") == [
        ("H2D", 50.0),
        ("D2H", 25.0),
        ("D2D", None),
        ("P2P", None),
    ]
    assert result.notes == (
        "link_pct is relative to 64.0 GB/s per direction (H200 data sheet). The trace does not say "
        "how the GPU is connected: pass --peak link=BYTES_PER_S.",
    )


def test_a_given_link_rate_comes_first(tmp_path):
    trace = Export().copy((0, 1), (10, 110), bytes=3200, source="pinned").load(tmp_path)

    result = ANALYSIS.run(trace.but(peaks={"link": 40e9}))

    assert rows(result, "copies", "link_pct") == [(80.0,)]
    assert result.notes == ("link_pct is relative to 40.0 GB/s per direction (--peak).",)


def test_a_copy_faster_than_the_data_sheet_shows_that_it_is_not_its_link(tmp_path):
    result = ask(ANALYSIS, Export().copy((0, 1), (10, 110), bytes=9000), tmp_path)

    assert rows(result, "copies", "link_pct") == [(None,)]


def test_the_link_of_an_unknown_product_is_not_known(tmp_path):
    export = Export().copy((0, 1), (10, 110), bytes=3200).gpu(0, name="NVIDIA H900")

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "copies", "link_pct") == [(None,)]
    assert "link_pct is absent where the data sheet of the GPU is unknown." in result.notes[0]


def test_copies_on_two_products_are_compared_with_their_own_links(tmp_path):
    """At their best 6,400 bytes take 100 ns on the H200 and 200 ns on the A100: 300 of 600 ns."""
    export = Export().gpu(1, name="NVIDIA A100-SXM4-80GB", smCount=108)
    for device in (0, 1):
        export.copy((0, 1), (10, 310), bytes=6400, source="pinned", device=device)

    assert rows(ask(ANALYSIS, export, tmp_path), "copies", "link_pct") == [(50.0,)]


def test_a_copy_that_took_no_time_has_no_rate(tmp_path):
    result = ask(ANALYSIS, Export().copy((0, 1), (10, 10)), tmp_path)

    assert rows(result, "copies", "bytes_per_s") == [(0,)]


def test_a_rate_that_no_integer_holds_ends_at_the_greatest(tmp_path):
    trace = Export().copy((0, 1), (10, 11), bytes=2**44).set((2, 3), (20, 21), bytes=2**44)
    result = ask(ANALYSIS, trace, tmp_path)

    assert rows(result, "copies", "bytes_per_s") == [(2**62,)]
    assert rows(result, "sets", "bytes_per_s") == [(2**62,)]


def test_memsets(tmp_path):
    export = Export().set((0, 1), (10, 20), bytes=50).set((1, 2), (20, 30), bytes=70)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sets", "calls", "bytes", "total_ns", "bytes_per_s") == [
        (2, 120, 20, 6_000_000_000)
    ]


def test_a_pageable_upload_is_at_the_line_that_python_samples_show(tmp_path):
    export = Export()
    for step in range(20):
        at = step * 10_000_000
        export.copy(
            (at, at + 5_000_000),
            (at + 1_000_000, at + 4_900_000),
            bytes=10_000_000,
            kind="H2D",
            source="pageable",
        )
        export.launch((at + 5_100_000, at + 5_105_000), (at + 5_200_000, at + 9_900_000))
        for sample in range(10):
            line = 31 if sample < 5 else 40
            at_line = ("/work/train.py", line, "get_batch")
            export.python_sample(at + sample * 1_000_000 + 500_000, at_line)

    [finding] = [
        each for each in ask(ANALYSIS, export, tmp_path).findings if each.severity != "info"
    ]

    assert finding.message.endswith("They are made at train.py:31 in get_batch.")
    assert finding.subject == Subject("line", "train.py:31", "/work/train.py", 31)


MADE = "Make the data on the GPU: pass device='cuda' to torch.zeros, which"


@pytest.mark.parametrize("call", ["cuda()", "cuda(non_blocking=True)", "to(device)", "to('cuda')"])
@pytest.mark.parametrize(
    ("above", "line", "made_at"),
    [
        ([], "x = torch.zeros(n, 4).{}", 31),
        ([], "h = net(Variable(torch.zeros(*a.size())).{})", 31),
        (["x = torch.zeros(n)"], "x = x.{}", 30),
        (["    x = Variable(torch.zeros(n,", "        m))", "if gpu:"], "x = x.{}", 28),
        (["x = torch.zeros(n)", "x = load(path)"], "x = x.{}", None),
        (["max_x = torch.zeros(n)"], "x = x.{}", None),
        (["y = torch.zeros(n)"], "x = x.{}", None),
        (["x == torch.zeros(n)"], "x = x.{}", None),
        (["x = torch.zeros(n, device=device)"], "x = x.{}", None),
        (["x = torch.zeros(n)", "", "", "", ""], "x = x.{}", None),
        ([], "x, y = (t.{} for t in batch)", None),
    ],
)
def test_data_that_the_cpu_makes_anew_is_to_be_made_on_the_gpu(
    above, line, call, made_at, tmp_path
):
    """Pinning it would be one more copy by the CPU, each time. The line that makes it changes."""
    export, source = Export(), line.format(call)
    for number, text in enumerate(above, 31 - len(above)):
        export.source_line("/work/net.py", number, text, around=True)
    export.source_line("/work/net.py", 31, source, around=True)
    for step in range(20):
        at = step * 10_000_000
        export.range(f"traceview:sync:/work/net.py:31 in f: {source} [Tensor.to]", at, at + 5 * MS)
        copied = (at + 100_000, at + 4_900_000)
        export.copy((at + 1_000, at + 4_950_000), copied, bytes=10**7, source="pageable")
        export.launch((at + 5_100_000, at + 5_105_000), (at + 5_200_000, at + 9_900_000))
    [finding] = [
        each for each in ask(ANALYSIS, export, tmp_path).findings if each.severity != "info"
    ]

    assert finding.subject.line == (made_at or 31)
    assert finding.evidence.values.get("made_at") == (
        f"net.py:{made_at}" if made_at not in (None, 31) else None
    )
    assert finding.action.startswith(MADE if made_at else "Pin the host memory")


@pytest.mark.parametrize(
    ("kind", "memory"), [("H2D", {"source": "pageable"}), ("D2H", {"destination": "pageable"})]
)
@pytest.mark.parametrize(
    ("others", "said"),
    [
        (1, "They are made at train.py:31 in log (`x`)."),
        (12, "62.4 ms of 91.2 ms is at train.py:31 in log (`x`), the most of any line."),
    ],
)
def test_a_pageable_copy_is_at_the_line_that_the_program_marks(
    kind, memory, others, said, tmp_path
):
    export = Export()
    for step in range(20):
        at, line = step * 10_000_000, 31 if step % 3 or others == 1 else 40
        text = f"traceview:sync:/work/train.py:{line} in log: x [Tensor.to]"
        export.range(text, at, at + 5_000_000)
        copied = (at + 100_000, at + 4_900_000)
        export.copy((at + 1_000, at + 4_950_000), copied, bytes=10_000_000, kind=kind, **memory)
        export.launch((at + 5_100_000, at + 5_105_000), (at + 5_200_000, at + 9_900_000))

    [finding] = [
        each for each in ask(ANALYSIS, export, tmp_path).findings if each.severity != "info"
    ]

    assert finding.message.endswith(said)
    assert finding.subject == Subject("line", "train.py:31", "/work/train.py", 31)


def test_a_copy_of_pageable_memory_is_a_finding(tmp_path):
    one = Export().copy((0, 1), (10, 110), bytes=1000, kind="H2D", source="pageable")
    (finding,) = ask(ANALYSIS, one, tmp_path).findings

    assert finding.message == (
        "1 copy of pageable memory (H2D, 1.00 kB) takes 100 ns (10.0 GB/s) and blocks the CPU "
        "meanwhile. The GPU does nothing else for 100 ns."
    )
    assert finding.share_of_step_pct == 100.0
    assert finding.evidence.row == {
        "direction": "H2D",
        "host_memory": "pageable",
        "migration_cause": None,
    }
    assert (finding.evidence.start_ns, finding.evidence.end_ns) == (10, 110)


@pytest.mark.parametrize("source", ["pageable", "pinned"])
def test_idle_time_while_pageable_bytes_are_moved_is_saved_by_pinning(source, tmp_path):
    """Ten copies of 100 µs, each after 99 µs in its call; the first one is warm-up.

    The CPU sets the pace: its calls are what is saved, and of the last copy 80 µs; of pinned memory
    no more than the copies take.
    """
    export = Export().launch((0, 1), (10_000, 20_000))
    for step in range(10):
        at = 20_000 + step * 300_000
        call, copied = (at + 1_000, at + 100_000), (at + 100_000, at + 200_000)
        export.copy(call, copied, bytes=MS, kind="H2D", source=source)
        export.launch((at + 110_000, at + 120_000), (at + 200_000, at + 300_000))

    finding, *_ = ask(ANALYSIS, export, tmp_path).findings

    saved_ns = 9 * 99_000 + 80_000 if source == "pageable" else 9 * 100_000
    assert finding.time_at_stake_ns == pytest.approx(saved_ns, rel=0.01)
    assert ("staging_ns" in finding.evidence.values) == (source == "pageable")
    moving = (
        "No kernel runs in that time. Before them, the GPU idles for 891 µs more while the CPU "
        "moves the bytes to pinned memory."
    )
    assert (moving in finding.message) == (source == "pageable")


def test_where_kernels_were_lost_no_copy_is_said_to_run_alone(tmp_path):
    export = Export()
    for start in range(0, 20_000_000, 1_000_000):
        export.launch_without_kernel((start, start + 5_000))
        export.copy((start + 6_000, start + 8_000), (start + 10_000, start + 900_000))
    trace = export.load(tmp_path)
    assert not [each for each in ANALYSIS.run(trace).findings if "No kernel" in each.message]
    board = scoreboard(trace)
    assert (board.copies_pct, board.gpu_busy_pct) == (None, None)


def test_copies_under_kernels_are_no_loss(tmp_path):
    # kernel 0────1000     1500────2500, on another stream; copies 100─400 and 1200─1700.
    export = (
        Export()
        .kernel_without_launch((0, 1000), stream=8)
        .kernel_without_launch((1500, 2500), stream=8)
        .copy((0, 1), (100, 400), bytes=10**6, source="pinned")
        .copy((2, 3), (1200, 1700), bytes=10**6, source="pinned")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "copies", "total_ns", "exposed_ns") == [(800, 300)]
    (finding,) = result.findings
    # No kernel is known to have waited for them.
    assert (finding.severity, finding.time_at_stake_ns) == ("info", 0)
    assert finding.message.startswith(
        "2 copies of pinned memory (H2D, 1.00 MB each) take 800 ns (2,500 GB/s). No kernel runs "
        "for 300 ns of it. For now the program would gain nothing"
    )
    assert finding.action.startswith("Start the copies earlier on a stream of their own")


@pytest.mark.parametrize(
    ("sizes", "said"),
    [([4], "4 B"), ([4] * 10_000, "4 B each"), ([4, 8, 4], "16 B in all"), ([0, 0], "0 B each")],
)
def test_the_size_of_copies_is_that_of_one_or_of_all(sizes, said):
    figures = wording.sizes(np.array(sizes))

    assert filled(sentence(wording.SIZE, figures), figures) == said


def test_uploads_before_the_program_computes_are_start_up(tmp_path):
    export = Export().copy((0, 1), (10, 5000), bytes=10**6)
    for step in range(30):
        start = 6000 + 100 * step
        export.kernel_without_launch((start, start + 90))

    (finding,) = ask(ANALYSIS, export, tmp_path).findings

    assert finding.severity == "info"
    assert "takes 4.99 µs of start-up (" in finding.message


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_copies_on_streams_that_take_turns_need_no_stream_of_their_own(tmp_path, streams):
    export, at = Export(), 0
    for step in range(12):
        stream = 13 + step % streams
        export.copy((at, at + 5), (at + 10, at + 900), source="pinned", stream=stream, bytes=10**5)
        export.launch((at + 6, at + 9), (at + 910, at + 1_400), stream=stream)
        at += 1_400

    (finding,) = ask(ANALYSIS, export, tmp_path).findings

    assert ("streams of these copies take turns" in finding.action) is (streams > 1)
    assert ("stream of their own" in finding.action) is (streams == 1)


@pytest.mark.parametrize("engines", [None, 1, 2])
@pytest.mark.parametrize("back", [0, 300, 800])
@pytest.mark.parametrize("kernel", [100, 1_500])
@pytest.mark.parametrize("overlap", [False, True])
def test_streams_hide_copies_up_to_what_an_engine_copies(tmp_path, engines, back, kernel, overlap):
    """Uploads of 900 ns, with copies back beside them or behind the kernel."""
    export = Export().gpu(0, asyncEngines=engines) if engines else Export()
    at, ends = 0, {"kind": "D2H", "source": "device", "destination": "pinned"}
    overlap &= engines != 1
    for step in range(40):
        stream = {"stream": 13 + step % 4}
        export.copy((at, at + 5), (at + 10, at + 910), source="pinned", bytes=10**5, **stream)
        export.launch((at + 6, at + 9), (at + 910, at + 910 + kernel), **stream)
        down = at + 10 if overlap else at + 910 + kernel
        if back:
            span = (down, down + back)
            export.copy((at + 10, at + 12), span, bytes=10**5, **stream, **ends)
        at += 910 + kernel + (0 if overlap else back)

    said = ask(ANALYSIS, export, tmp_path).findings

    fills = 900 + back if engines == 1 else 900
    pass_ns = at / 40
    up = next(each for each in said if "(H2D" in each.message)
    assert up.time_at_stake_ns <= 1.1 * 40 * (pass_ns - fills)
    assert ("Copy fewer bytes" in up.action) is (fills > 0.8 * pass_ns)
    assert ("one way at a time" in up.action) is (engines == 1)
    assert "in flight together" in up.action or engines == 1 or fills > 0.8 * pass_ns
    for down in (each for each in said if "(D2H" in each.message):
        least = fills if engines == 1 else back
        assert down.time_at_stake_ns <= 1.1 * 40 * (pass_ns - least)


@pytest.mark.parametrize("kernels", [1, 2, 5])
@pytest.mark.parametrize("uploads", [1, 3])
def test_uploads_of_a_single_pass_are_no_start_up(tmp_path, kernels, uploads):
    """Upload, compute and read back once, as most first programs in CUDA do."""
    export, at = Export(), 0
    for _ in range(uploads):
        export.copy((at, at + 1), (at + 10, at + 9_000), bytes=10**5)
        at += 10_000
    for _ in range(kernels):
        export.launch((at, at + 5), (at + 10, at + 500))
        at += 1_000
    ends = {"kind": "D2H", "source": "device", "destination": "pageable"}
    export.copy((at, at + 1), (at + 10, at + 2_000), bytes=10**5, **ends)

    said = [finding.message for finding in ask(ANALYSIS, export, tmp_path).findings]

    assert [message for message in said if "(H2D, 100 kB" in message]
    assert not [message for message in said if "start-up" in message]


@pytest.mark.parametrize(("gigabytes", "kernels_ms"), [(1.0, 1), (2.0, 10), (0.5, 30), (0.1, 0.1)])
@pytest.mark.parametrize(("capability", "rate"), [((12, 0), 63), ((8, 6), 32), ((7, 5), 16)])
def test_a_single_pass_does_not_save_what_its_bytes_take(
    tmp_path, gigabytes, kernels_ms, capability, rate
):
    """No link is faster than that of its PCIe, and only kernels of the pass can hide a copy."""
    size, took = int(gigabytes * 1e9), int(gigabytes * 1e8)
    major, minor = capability
    gpu = {"name": "NVIDIA GeForce RTX 9999", "computeMajor": major, "computeMinor": minor}
    export = Export().gpu(0, **gpu)
    export.copy((0, took + 5_000), (1_000, took), bytes=size, api="cudaMemcpy_v3020")
    compute = int(kernels_ms * 1e6)
    export.launch((took + 9_000, took + 9_500), (took + 10_000, took + 10_000 + compute))
    trace = export.load(tmp_path)

    (upload, *_) = [f for f in ANALYSIS.run(trace).findings if "H2D" in f.message]

    least = max(took - max(size / rate - compute, 0) - 1_000, 0)
    assert upload.time_at_stake_ns == pytest.approx(least, rel=0.02, abs=6_000)


def test_the_gpu_with_most_exposed_copies_counts_and_not_their_sum(tmp_path):
    export = Export()
    for device, took in enumerate((500, 800)):
        where = {"device": device, "process": device + 1}
        export.kernel_without_launch((0, 1000), **where)
        span = (1000, 1000 + took)
        export.copy((900, 901), span, bytes=10**6, source="pinned", **where)

    (finding,) = ask(ANALYSIS, export, tmp_path).findings

    assert finding.time_at_stake_ns == 800
    assert finding.subject.name == "GPU 1"
    assert "GPU 1 runs no kernel in that time." in finding.message


def test_many_reads_of_single_values_are_not_answered_by_pinning(tmp_path):
    export = Export()
    for step in range(30):
        start = 100 * step
        export.kernel_without_launch((start, start + 50))
        span = (start + 50, start + 60)
        export.copy(None, span, bytes=8, kind="D2H", source="device", destination="pageable")

    (finding, *_) = ask(ANALYSIS, export, tmp_path).findings

    assert finding.action.startswith("Read results on the CPU less often")


@pytest.mark.parametrize("seed", range(10))
def test_exposed_time_against_counting_every_nanosecond(tmp_path, seed):
    random = np.random.default_rng(seed)
    export, computes, copies = Export(), set(), {"pageable": set(), "pinned": set()}
    for _ in range(40):
        start = int(random.integers(3000))
        span = (start, start + int(random.integers(1, 90)))
        if random.integers(2):
            export.kernel_without_launch(span, stream=int(random.integers(7, 9)))
            computes.update(range(*span))
        else:
            source = ("pageable", "pinned")[int(random.integers(2))]
            export.copy(None, span, source=source)
            copies[source].update(range(*span))

    result = ask(ANALYSIS, export, tmp_path)

    expected = {source: len(times - computes) for source, times in copies.items() if times}
    assert dict(rows(result, "copies", "host_memory", "exposed_ns")) == expected


@pytest.mark.parametrize("name", ["warm_up", "Warm-Up", "WARMUP", "warm up"])
def test_copies_launched_in_a_warm_up_range_are_of_warm_up(name, tmp_path):
    export = (
        Export()
        .range("load", 0, 60)
        .range(name, 10, 50)
        # It runs only after the range has ended: its call tells where it belongs.
        .copy((20, 30), (100, 1100), bytes=10_000)
        .copy((1200, 1210), (1300, 1400), bytes=1000)
    )

    findings = ask(ANALYSIS, export, tmp_path).findings

    assert {each.severity for each in findings} == {"info"}
    assert sorted(each.time_at_stake_ns for each in findings) == [pytest.approx(100, abs=10), 1000]
    assert "of warm-up or start-up" in findings[-1].message


NUMBA = "heat[abi:v1,cw51cXTLSUwv1s](Array<float, 2>)"


@pytest.mark.parametrize(
    ("back", "kernel", "keeps"),
    [(1000, "heat(float*)", True), (500, "heat(float*)", False), (1000, NUMBA, True)],
)
def test_an_upload_of_what_comes_back_can_stay_on_the_gpu(back, kernel, keeps, tmp_path):
    """Each step uploads 1 MB, computes, and downloads as much, or half of it."""
    export = Export()
    for start in range(0, 6_000_000, 1_000_000):
        sent = (start + 10, start + 300_000)
        export.copy((start, start + 5), sent, bytes=1_000_000, source="pinned")
        busy = start + 300_000, start + 500_000
        export.launch((start + 6, start + 7), busy, name=kernel)
        received = (start + 500_000, start + 900_000)
        target = {"kind": "D2H", "source": "device", "destination": "pinned"}
        export.copy((start + 8, start + 9), received, bytes=1000 * back, **target)

    found = ask(ANALYSIS, export, tmp_path).findings

    actions = {each.evidence.values["direction"]: each.action for each in found}
    assert actions["H2D"].startswith("Keep on the GPU what is copied back and forth") == keeps
    assert ("Numba copies NumPy arrays" in actions["H2D"]) == (kernel == NUMBA)
    assert "come back as go up" not in actions["D2H"]


@pytest.mark.parametrize(
    ("evaluates_ns", "in_steps", "counts"),
    [(0, 512, False), (3_000, 512, True), (0, 1 << 20, True)],
    ids=["ends", "goes on", "as in the steps"],
)
def test_weights_that_leave_after_the_last_step_are_no_loss_of_the_loop(
    tmp_path, evaluates_ns, in_steps, counts
):
    """A trainer moved its model away at the end: `Read results on the CPU less often`."""
    export = Export()
    for step in range(10):
        start = 1_000 * step
        export.range(f"step_{step}", start, start + 900)
        export.launch((start + 10, start + 20), (start + 30, start + 940))
        span = (start + 941, start + 942)
        export.copy(None, span, bytes=in_steps, kind="D2H", source="device", destination="pageable")
    last = 10_000 + evaluates_ns
    export.launch((last - 20, last - 10), (last - 5, last))
    for each in range(40):
        span = (last + 10 * each, last + 10 * each + 9)
        export.copy(None, span, bytes=1 << 20, kind="D2H", source="device", destination="pageable")

    found = [each.message for each in ask(ANALYSIS, export, tmp_path).findings]

    assert any("D2H" in each for each in found) == counts


def test_a_result_copied_after_the_last_step_is_that_of_the_program(tmp_path):
    export = Export()
    for number in range(4):
        at = 1_000_000 * number
        export.launch((at, at + 1), (at + 10, at + 900_000)).range(f"step_{number}", at, at + 99)
    back = {"kind": "D2H", "source": "device", "destination": "pageable", "bytes": 1 << 20}
    export.copy((4_000_000, 4_000_001), (4_000_002, 6_000_000), **back)

    findings = ask(ANALYSIS, export, tmp_path).findings

    assert next(each for each in findings if "(D2H, " in each.message).saving == "at-most"


@pytest.mark.parametrize(("size", "many"), [(8 << 10, True), (8 << 20, False)])
def test_many_small_copies_are_to_be_fewer(size, many, tmp_path):
    """8 KiB in 2 µs are a fifteenth of what the link of an H200 carries."""
    export = Export()
    for number in range(40):
        at, took = 10_000 * number, 2_000 if many else 200
        export.launch((at, at + 1), (at + 10, at + 3_000))
        export.copy((at + 2, at + 3), (at + 4_000, at + 4_000 + took), source="pinned", bytes=size)

    [finding] = [f for f in ask(ANALYSIS, export, tmp_path).findings if "(H2D, " in f.message]

    assert ("copy many at once" in finding.action) == many


def test_a_few_large_copies_among_many_small_ones_take_the_time(tmp_path):
    export = Export()
    for number in range(40):
        at, size = 100_000 * number, 64 if number % 4 else 4 << 20
        export.launch((at, at + 1), (at + 10, at + 3_000))
        export.copy((at + 2, at + 3), (at + 4_000, at + 80_000), source="pinned", bytes=size)

    [finding] = [f for f in ask(ANALYSIS, export, tmp_path).findings if "(H2D, " in f.message]

    assert finding.action.startswith("Start the copies earlier")


@pytest.mark.parametrize("copied", [1, 3, 9, 30])
@pytest.mark.parametrize("source", ["pinned", "pageable"])
def test_pinned_uploads_that_start_earlier_hide_behind_other_work_alone(tmp_path, copied, source):
    export, at = Export(), 1_000
    for number in range(20):
        call, end = 20 * number, at + copied * MS
        export.copy((call, call + 9), (at, end), source=source, bytes=copied * 25_000_000)
        export.launch((call + 10, call + 19), (end, end + 2 * MS))
        at = end + 2 * MS
    findings = ask(ANALYSIS, export, tmp_path).findings
    [finding] = [each for each in findings if each.severity != "info"]
    # The first upload is start-up.
    others = 20 * 2 + copied if source == "pinned" else 19 * copied
    assert finding.time_at_stake_ns == pytest.approx(min(19 * copied, others) * MS, rel=0.01)


@pytest.mark.parametrize("name", ["main_53_gpu", "nvkernel_push__F1L664_1_"])
@pytest.mark.parametrize("kind", ["H2D", "D2H"])
@pytest.mark.parametrize("passes", [1, 2, 4, 30])
def test_a_data_region_helps_where_a_loop_copies_again(tmp_path, name, kind, passes):
    ends = {"H2D": {"source": "pinned"}, "D2H": {"source": "device", "destination": "pinned"}}
    export, at = Export(), 1_000
    for number in range(passes):
        call, end = 20 * number, at + 3 * MS
        export.copy((call, call + 9), (at, end), kind=kind, bytes=75_000_000, **ends[kind])
        export.launch((call + 10, call + 19), (end, end + MS), name=name)
        at = end + MS
    [finding] = [f for f in ask(ANALYSIS, export, tmp_path).findings if kind in f.message]
    # The first upload of a loop is start-up.
    copied = passes - (kind == "H2D" and passes > 8)
    assert ("in a data region" in finding.action) is (copied >= 4)


@pytest.mark.parametrize("rows", [4, 64, 300])
@pytest.mark.parametrize("size", [1024, 8192, 1 << 17])
@pytest.mark.parametrize("alternates", [False, True])
@pytest.mark.parametrize(
    ("name", "pause_ns"), [("main_9_gpu", 9_000), ("step", 1_000), ("at::native::add", 9_000)]
)
def test_an_array_of_rows_is_copied_row_by_row(tmp_path, rows, size, alternates, name, pause_ns):
    """In a row and all of a size, or with a kernel on each between them; not those of torch.

    Whatever lies between them, waits or work of the CPU, is the same loss.
    """
    export, at = Export(), 1_000
    for _ in range(5):
        for number in range(rows):
            api = "cudaMemcpy_v3020"
            export.copy((at - 900, at + 3_000), (at, at + 3_000), bytes=size, api=api)
            at += 3_000 + pause_ns
            if alternates or number == rows - 1:
                export.launch((at - 900, at - 800), (at, at + 3_000), name=name)
                at += 4_000
    found = [f for f in ask(ANALYSIS, export, tmp_path).findings if "(H2D," in f.message]
    one_by_one = rows >= 64 and size <= 8192 and not alternates and "at::" not in name
    assert len(found) == (not one_by_one)
    waits = [f for f in ask(SYNCS, export, tmp_path).findings if "one block of" in f.action]
    assert len(waits) == one_by_one
    assert not one_by_one or ("cudaMemcpy2D" in waits[0].action) is (name == "step")
    idle = [f for f in ask(IDLE, export, tmp_path).findings if f.severity != "info"]
    assert not one_by_one or not any(f.time_at_stake_ns > 5 * rows * pause_ns // 2 for f in idle)


@pytest.mark.parametrize("rate", [4, 12, 40])
@pytest.mark.parametrize("size", [1 << 20, 1 << 27])
@pytest.mark.parametrize("beside", [False, True])
def test_large_pinned_copies_far_below_the_rate_of_the_link(tmp_path, rate, size, beside):
    """Of 64 GB/s; with copies in the other direction beside them, the GPU does something else."""
    export, at, took = Export(), 1_000, size // rate
    for number in range(12):
        call = 40 * number
        export.copy((call, call + 9), (at, at + took), bytes=size, source="pinned")
        if beside:
            back = {"source": "device", "destination": "pinned", "stream": 9}
            end = at + took // 2
            export.copy((call + 10, call + 19), (at, end), kind="D2H", bytes=size // 8, **back)
        at += took
        export.launch((call + 20, call + 29), (at, at + took // 4))
        at += took // 4
    [found] = [f for f in ask(ANALYSIS, export, tmp_path).findings if "(H2D" in f.message]
    assert ("Check the link" in found.action) is (rate < 16 and size > 1 << 24)
    assert ("does nothing else" in found.message) is not beside


@pytest.mark.parametrize("direction", ["H2D", "D2H"])
def test_copies_that_gain_more_idle_between_copies(tmp_path, direction):
    export, at = Export(), 0
    ends = {"source": "pageable"} if direction == "H2D" else {"destination": "pageable"}
    for _ in range(12):
        span = (at + 100, at + 150)
        export.copy((at, at + 400), span, bytes=10**4, kind=direction, **ends)
        export.launch((at + 410, at + 415), (at + 420, at + 500))
        at += 600

    said = " ".join(finding.message for finding in ask(ANALYSIS, export, tmp_path).findings)

    assert "idle between these copies" in said
    assert "these kernels" not in said


@pytest.mark.parametrize("seed", range(12))
def test_what_copies_save_at_most_is_never_more_than_they_take(tmp_path, seed):
    """Passes of small kernels and of copies of any kind, with waits: a replay would win more."""
    draw, export, at = np.random.default_rng(seed), Export(), 0
    kinds = [
        ("pinned", "device", "H2D"),
        ("pageable", "device", "H2D"),
        ("device", "pinned", "D2H"),
    ]
    chosen = [kinds[number] for number in draw.integers(0, 3, draw.integers(1, 4))]
    size, took = int(draw.choice([8, 1600, 1 << 22])), int(draw.integers(2_000, 60_000))
    pause, before = int(draw.integers(0, 80_000)), int(draw.integers(0, 200_000))
    for _ in range(60):
        export.launch((at, at + 4_000), (at + 5_000, at + 5_000 + before), name="k", gridX=2000)
        at += 6_000 + before + pause
        for source, destination, kind in chosen:
            ends = {"source": source, "destination": destination, "kind": kind, "bytes": size}
            export.copy((at, at + 5_000), (at + 6_000, at + 6_000 + took), **ends)
            export.sync("cudaStreamSynchronize", at + 6_000, at + 7_000 + took)
            at += 8_000 + took + pause
    report = traceview.analyze(export.load(tmp_path))
    for row in report.findings:
        found, values = row.finding, row.finding.evidence.values
        if row.analysis == "memory-copies" and found.saving == "at-most":
            most_ns = values["total_ns"] + values.get("staging_ns", 0)
            assert found.time_at_stake_ns <= most_ns
            assert "The program gains more" not in found.message


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("api", ["cudaMemcpy", "cudaMemcpyAsync"])
@pytest.mark.parametrize("staged_ms", [0, 2, 6])
@pytest.mark.parametrize("copy_ms", [1, 5])
def test_a_pageable_upload_is_one_story(tmp_path, marked, api, staged_ms, copy_ms):
    """Also where a mark of the program locates the call."""
    export, ms, at = Export(), 1_000_000, 0
    for step in range(12):
        begin, end = at, at + (staged_ms + copy_ms) * ms
        if marked:
            export.range(
                "traceview:sync:train.py:9 in step: x.to(gpu) [Tensor.to]", at, end + 9_000
            )
        times = (at + 1_000, end), (at + staged_ms * ms + 5_000, end - 5_000)
        export.copy(*times, bytes=9 * ms, api=api)
        at = end + 50_000
        export.launch((at, at + 5_000), (at + 8_000, at + 3 * ms), name="work")
        export.sync("cudaStreamSynchronize_v3020", at + 9_000, at + 3 * ms + 2_000)
        at += 3 * ms + 9_000
        export.range(f"step_{step}", begin, at)
    report = traceview.analyze(export.load(tmp_path))

    told = [each for each in report.findings if each.severity != "info"]
    assert [each.analysis for each in told if "pin" in each.finding.action.lower()] == [
        "memory-copies"
    ]
    values = told[0].finding.evidence.values
    assert values.get("staging_ns", 0) == pytest.approx(11 * staged_ms * ms, rel=0.1)
    assert ("made at train.py:9" in told[0].finding.message) is marked

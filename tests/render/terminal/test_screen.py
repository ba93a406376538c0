"""One screen: never more lines, whatever is found and however it is named."""

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

import traceview
from tests.places import DATA
from tests.render.example_report import CONTROLS, HOSTILE, a_report
from traceview.base.findings import Evidence, Finding, Forecast, Subject
from traceview.render.base.text import wrapped
from traceview.render.document import ScoreTile
from traceview.render.report.text import FindingText, render_text
from traceview.render.screen import MOST_LINES, render_screen, scoreboard_lines
from traceview.traces.plan import RankedFinding
from traceview.traces.trace.model import Selection

LONG = "a sentence that goes on and on, with " * 60
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


def with_findings(*findings):
    return replace(a_report(), findings=tuple(RankedFinding("gpu-idle", each) for each in findings))


def finding(severity="high", message=LONG, action=LONG, **options):
    return Finding(severity, message, action, time_at_stake_ns=1_000_000, **options)


@pytest.mark.parametrize("width", [40, 60, 80, 160])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_never_more_than_a_screen(width, count):
    many = with_findings(*[finding()] * count, *[finding("info")] * 30)
    text = render_screen(many, width=width)
    assert len(text.splitlines()) <= MOST_LINES
    assert max(cell_len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_what_a_finding_saves_is_whole_at_any_width(width):
    slow = finding(message="Slow.", action="", share_of_step_pct=82.3)
    forecast = Forecast(27_500_000, 33_300_000, 5.7, "at-most")
    report = replace(a_report(), findings=(RankedFinding("wave-quantization", slow, forecast),))
    lines = render_screen(report, width=width).splitlines()
    told = " ".join(" ".join(lines[lines.index("What to do first") + 1 :]).split())
    assert told.startswith("high save up to 27.5 of 33.3 ms per step (82.6 %)")
    assert "[wave-quantization] Slow." in told


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize(
    ("include", "exclude"),
    [
        (("step_*",), ("step_*",)),
        (("a" * 300,), ()),
        ((), tuple(f"step_{i}" for i in range(99))),
        (("漢字" * 99,), (CONTROLS,)),
    ],
)
def test_the_first_line_always_says_what_is_selected(width, include, exclude):
    report = a_report(
        selection=Selection(include, exclude), path=f"/data/{'long name ' * 9}.sqlite"
    )
    first = render_screen(report, width=width).splitlines()[0]
    assert cell_len(first) <= width
    parts = first.split(" · ")[1:]
    words = [re.match(r"\w+", part)[0] for part in parts if part.startswith(("only", "without"))]
    assert words == ["only"] * bool(include) + ["without"] * bool(exclude)


def test_a_single_finding_is_told_in_full():
    text = render_screen(with_findings(finding(message="One. Two. Three.", action="Do it.")))
    assert "One. Two. Three." in text
    assert "→ Do it." in text


def test_what_does_not_fit_ends_with_a_whole_sentence():
    message = "The GPU sat idle. " + "More of it is told here in many words. " * 20
    text = render_screen(with_findings(*[finding(message=message, action="")] * 7))
    told = re.findall(r"\[gpu-idle\]\n((?:  .*\n)+)", text)
    assert len(told) == 7
    assert all(each.endswith(".\n") for each in told)
    assert "…" not in text


@pytest.mark.parametrize("length", [5, 20, 45])
@pytest.mark.parametrize("end", ["", ", where net.py:7 in g launches most (13.8 %)"])
def test_a_place_is_told_without_its_source_where_it_does_not_fit_with_it(length, end):
    source = f" (`{'x ' * length}= f(x)`)"
    first = "The GPU sat idle for 1.11 s (73,878 gaps) waiting for the CPU to launch work."
    place = "554 ms of that was at train.py:312, in the backward pass of model.py:189 in forward"
    entry = RankedFinding("gpu-idle", finding(message=f"{first} {place}{source}{end}."))
    room, text = FindingText(entry, 80, links=False), f"{first} {place}{end}."

    brief, full = (
        " ".join(line.plain.strip() for line in room.lines(most, 0)[1:]) for most in (4, 9)
    )

    assert full == f"{first} {place}{source}{end}."
    assert brief.replace(source, "") == text


@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("severity", ["high", "medium"])
@pytest.mark.parametrize("width", [80, 100])
def test_what_comes_first_has_its_action(count, severity, width):
    worst = finding(severity, message="Worst. " * 60, action="Do this first. Then that.")
    others = [finding("medium", message="A loss of many words. " * 20)] * (count - 1)
    assert "→ Do this first." in render_screen(with_findings(worst, *others), width=width)


def test_six_findings_still_name_their_lines():
    """Found on cupy's black_scholes.py: two findings differed only in the line that was cut off."""
    many = [
        finding(
            message="The GPU sat idle for 325 ms (2 gaps) while the CPU did other work than "
            f"launching. All of it was at black_scholes.py:{line}, calling numpy.isclose.",
            action="Take this CPU work out of the way: do it earlier or later, or on another "
            "thread or process, so that launches reach the GPU before it runs dry.",
        )
        for line in range(143, 149)
    ]
    text = render_screen(with_findings(*many))
    assert re.findall(r"py:(\d+)", text) == ["143", "144", "145", "146", "147", "148"]


def test_notes_are_whole_sentences():
    note = "The CPU was inside launch calls for 54.0 ms of the 1.09 s that the GPU sat idle. More."
    text = render_screen(with_findings(finding(message="Slow."), *[finding("info", note)] * 5))
    assert text.count("of the 1.09 s that the GPU\n      sat idle. More.  [gpu-idle]") == 3
    assert "… and 2 more notes in --all" in text


def test_a_remedy_ends_with_a_whole_sentence_or_is_left_out():
    wordy = finding(
        message="The GPU sat idle. " + "More of it is told here. " * 8,
        action="Do this, in as many words as it takes to fill more than one line, and do that too.",
    )
    for count in range(1, 12):
        text = render_screen(with_findings(*[wordy] * count))
        assert text.count("[gpu-idle]") == count
        assert text.count("  → Do this") == len(re.findall("do\\s+that\\s+too[.]\n", text))


THREE_LINES = (
    "Write it as a matrix product, with a vector of ones or the mask as one factor: CuPy reduces "
    "each value in one block, cuBLAS splits the sum over all SMs."
)


def test_a_high_finding_has_its_remedy_before_others_have_details():
    """Found on cupy's kmeans.py: the first finding of a step lost its remedy, the last kept it."""
    others = [finding(severity, "Slow. " * 25, "Do it.") for severity in ("medium",) * 4 + ("low",)]
    high = finding(message="It is slow. " * 9, action=THREE_LINES)
    lines = render_screen(with_findings(high, high, *others)).splitlines()
    assert lines.count("    over all SMs.") == 2
    assert not any("--only gpu-idle" in line for line in lines)


def test_medium_findings_have_their_remedies_before_low_ones_have_details():
    """Found on cupy's kmeans.py: the launches of a step lost their remedy, small gaps kept it."""
    remedy = "Do this instead, and then do that, " * 4 + "too."
    medium = finding("medium", "It is slow. " * 12, remedy)
    low = finding("low", "Slow. " * 40, "Do it.")
    text = render_screen(with_findings(*[medium] * 4, low, low))
    assert text.count("→ Do this") == 4


@pytest.mark.parametrize("lows", range(1, 6))
@pytest.mark.parametrize("mediums", range(1, 5))
def test_low_findings_make_room_for_remedies(mediums, lows):
    """They go where a finding above them gains its remedy, or they would have none; and are counted
    then."""
    high = finding(message="It is slow. " * 9, action=THREE_LINES)
    medium = finding("medium", "Slow. " * 40, THREE_LINES)
    low = [finding("low", "Slow. " * 40, f"Do thing {number}.") for number in range(lows)]
    text = render_screen(with_findings(high, *[medium] * mediums, *low))
    shown = len(re.findall("^low ", text, re.MULTILINE))
    dropped = re.search(r"and (\d+) more low finding", text)
    assert shown + int(dropped[1] if dropped else 0) == lows
    assert shown >= 1
    assert shown == 1 or text.count("→ Do ") == shown
    assert text.count("over all SMs.") >= min(1 + mediums, 3)


@pytest.mark.parametrize("notes", [1, 2, 5])
def test_without_a_loss_no_low_finding_is_counted(notes):
    text = render_screen(with_findings(*[finding("info", "Early.", "Do so.")] * notes))
    assert "low finding" not in text


@pytest.mark.parametrize("gpu", ["NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 4060 Laptop GPU"])
@pytest.mark.parametrize("name", ["run.sqlite", "ip-172-31-15-66_28356.1764457406366893.pt.json"])
def test_a_long_file_name_leaves_room_for_the_gpu(name, gpu):
    report = with_findings(finding())
    gpus = tuple(replace(each, name=gpu) for each in report.trace.gpus)
    trace = replace(report.trace, path=f"/data/{name}", gpus=gpus, selection=Selection())
    report = replace(report, trace=trace)
    first = render_screen(report, width=80).splitlines()[0]
    assert first.startswith(name[:10])
    assert gpu in first


@pytest.mark.parametrize("width", [40, 80])
def test_a_high_finding_without_room_for_its_remedy_refers_to_it(width):
    many = [finding(action=THREE_LINES.replace(".", ", and so on") * 4)] * 6
    text = render_screen(with_findings(*many), width=width)
    assert text.count("→ see --only gpu-idle") >= 5
    assert "Write it" not in text
    assert "→" not in render_screen(with_findings(*[finding(action="")] * 6))


@pytest.mark.parametrize(
    ("severity", "note_ns", "in_full"),
    [("low", 9_000_000, True), ("low", 20_000, False), ("medium", 9_000_000, False)],
)
def test_beside_little_a_note_on_more_time_has_its_remedy(severity, note_ns, in_full):
    little = replace(finding(severity, "A few copies.", "Copy less."), time_at_stake_ns=50_000)
    note = replace(finding("info", "One kernel.", "Compare it."), time_at_stake_ns=note_ns)
    fact = replace(finding("info", "All is early.", "Do so."), time_at_stake_ns=0)
    text = render_screen(with_findings(little, note, fact))
    assert ("→ Compare it." in text) is in_full
    assert "→ Do so." not in text


@pytest.mark.parametrize("severity", ["high", "medium", "low"])
@pytest.mark.parametrize("first", [True, False])
def test_a_note_before_a_finding_has_its_remedy(severity, first):
    waits = replace(finding(severity, "A few waits.", "Wait less."), time_at_stake_ns=50_000)
    start = replace(finding("info", "A start.", "Warm up."), time_at_stake_ns=30_000)
    own = finding("info", "One kernel.", "Measure it.", subject=Subject("kernel", "step"))
    own = replace(own, time_at_stake_ns=40_000)
    text = render_screen(with_findings(*((own, waits) if first else (waits, own)), start))
    assert ("→ Measure it." in text) is first
    assert "→ Wait less." in text
    assert "→ Warm up." not in text


def test_notes_on_next_to_no_time_are_not_on_the_screen():
    short = replace(finding("info", "One copy takes 1.47 µs."), time_at_stake_ns=1_470)
    assert "One copy" not in render_screen(with_findings(finding(message="Slow."), short))


@pytest.mark.parametrize("warning", ["the export is newer; " + "only some of it is read, " * 3])
def test_a_warning_is_told_to_its_end(warning):
    report = a_report()
    report = replace(report, trace=replace(report.trace, warnings=(warning,)))
    lines = render_screen(report).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Warning: "))
    told = " ".join(line.removeprefix("Warning: ").strip() for line in lines[at : at + 2])
    assert told == warning.strip()


@pytest.mark.parametrize("name", [HOSTILE, CONTROLS, "漢字" * 40, "x" * 10_000_000])
@pytest.mark.parametrize("color", [False, True])
def test_hostile_names_do_no_harm(name, color):
    subject = Subject("line", name, name, 3)
    values = Evidence(values={"place": name})
    worst = finding(message="It is {place}.", action="Look at {place}.", evidence=values)
    report = with_findings(replace(worst, subject=subject))
    report = replace(report, trace=replace(report.trace, path=name, warnings=(name, name)))
    text = render_screen(report, color=color, links=True)
    assert len(text.splitlines()) <= MOST_LINES
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert not UNSAFE.search(plain)
    assert max(cell_len(line) for line in plain.splitlines()) <= 80


@pytest.mark.parametrize("render", [render_screen, render_text])
def test_a_source_line_of_this_machine_is_a_link(tmp_path, render):
    odd = tmp_path / "a;b\x1b]8 é.py"
    odd.write_text("pass\n")
    for file in (odd, tmp_path / "train.py"):
        file.write_text("pass\n")
        place = f"{file.name}:31"
        lost = finding(
            message="Idle at {place}.",
            action="",
            subject=Subject("line", place, str(file), 31),
            evidence=Evidence(values={"place": place}),
        )
        text = render(with_findings(lost), color=True, links=True)
        addresses = re.findall(r"\x1b\]8;[^;]*;([^\x1b]*)\x1b\\", text)
        assert all(re.fullmatch(r"(file:///[\w/.%~-]+)?", address) for address in addresses)
    assert f"file://{tmp_path}/train.py" in addresses


def test_no_link_to_what_is_not_here(tmp_path):
    gone = Subject("line", "train.py:31", str(tmp_path / "train.py"), 31)
    text = render_screen(
        with_findings(finding(message="Idle at train.py:31.", subject=gone)), color=True, links=True
    )
    assert "\x1b]8" not in text


def test_without_gpu_work_nothing_is_said_of_its_kinds():
    report = traceview.analyze(traceview.load(DATA / "ranges_2023_4.sqlite.xz"))
    shown = render_screen(report, width=80)
    assert "No GPU work was recorded." in shown
    assert "none" not in shown


@pytest.mark.parametrize("width", range(12, 60))
def test_no_line_ends_between_a_number_and_its_unit(width):
    text = "It took 84.3 % of 1.19 s (325 ms, 118 MB at 17.4 GB/s) in 2 gaps; s is a letter."
    lines = wrapped(text, width, 99)
    assert " ".join(lines) == text
    assert all(cell_len(line) <= width for line in lines)
    assert not any(re.match(r"(%|s|ms|MB|GB/s)(?=[ ,.)]|$)(?! is)", line) for line in lines)


def test_a_long_value_stands_apart_from_its_detail():
    tile = ScoreTile("launch", "Launches", "GPU-bound", "the CPU launches ahead")
    (line,) = scoreboard_lines([tile, tile], 160)
    assert line.plain.count("GPU-bound  the CPU launches ahead") == 2


@pytest.mark.parametrize(
    ("busy", "step"), [("of 1.01 s, GPU 1 of 2", "median of 8"), ("of 77.0 ms", "median of 2,954")]
)
def test_details_fit_at_80_columns_beside_a_value_without_padding(busy, step):
    left = ScoreTile("busy", "GPU busy", "28.2 %", busy)
    (line,) = scoreboard_lines([left, ScoreTile("step", "Step", "25.4 µs", step)], 80)
    assert " ".join(line.plain.split()) == f"GPU busy 28.2 % {busy} Step 25.4 µs {step}"
    assert cell_len(line.plain) <= 80
    assert line.plain.index("Step") == 41


def test_a_share_has_its_whole_where_the_rest_does_not_fit():
    tile = ScoreTile("busy", "GPU busy", "28.2 %", "of 1.01 s, GPU 11 of 16")
    other = ScoreTile(
        "launches", "Launches", "data-bound", "the CPU loads data, then launches late"
    )
    (line,) = scoreboard_lines([tile, other], 80)
    assert line.plain.split("Launches")[0].rstrip() == "GPU busy  28.2 %    of 1.01 s"
    assert line.plain.endswith("data-bound")


@pytest.mark.parametrize("count", range(8))
@pytest.mark.parametrize("width", [40, 80, 160])
def test_any_number_of_figures_is_shown(count, width):
    tiles = [ScoreTile(f"f{at}", f"Name{at}", f"{at} ms") for at in range(count)]
    text = "\n".join(line.plain for line in scoreboard_lines(tiles, width))
    assert all(f"Name{at}" in text for at in range(count))


def test_names_on_the_left_stand_apart_from_their_values():
    tiles = [ScoreTile(name, name, "1") for name in ("GPU busy", "Step", "Memory peak")]
    lines = [line.plain.rstrip() for line in scoreboard_lines(tiles, 80)]
    assert lines == ["GPU busy     1".ljust(41) + "Step           1", "Memory peak  1"]

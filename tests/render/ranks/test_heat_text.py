"""The heat map in a terminal: a letter per rank and step; of several a cell shows the worst."""

import re
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len

from tests.render.example_report import CONTROLS, HOSTILE
from tests.render.ranks.jobs import MS, Shape, a_job
from traceview.base.tables import NULL
from traceview.render.ranks.text import _LETTERS, heat_lines, render_job
from traceview.traces.ranks.job import PARTS, HeatMap

STEP_NS = 100 * MS
WAIT, LATE = PARTS.index("wait"), PARTS.index("launch-late")


def a_map(ranks, steps):
    """A heat map of steps that are nothing but compute."""
    parts = np.zeros((ranks, steps, len(PARTS)), np.int64)
    parts[:, :, 0] = STEP_NS
    none = np.zeros((ranks, steps), np.int64)
    names = tuple(f"step_{number}" for number in range(steps))
    return HeatMap(names, none + STEP_NS, none > 0, parts, none.copy(), none.copy(), none.copy())


def plain(lines):
    return [line.plain for line in lines]


def test_the_late_rank_and_those_that_wait_have_letters_in_every_third_step():
    lines = plain(heat_lines(a_job(Shape(4, steps=9, late=1)), 80, 40))
    assert lines == [
        "Ranks and steps  largest part besides compute",
        "step  1         6",
        "0     c c w c c w c c",
        "1     c c l c c l c c",
        "2     c c w c c w c c",
        "3     c c w c c w c c",
        "w waits for others · l CPU late · c communication · . below 5 % of a step ·",
        "CAPITAL half or more",
    ]


def test_a_part_of_half_a_step_has_a_capital_and_a_small_one_none():
    heat = a_map(2, 4)
    heat.parts_ns[0, :, WAIT] = [4 * MS, 5 * MS, 49 * MS, 50 * MS]
    heat.more_work_ns[1] = [4 * MS, 5 * MS, 49 * MS, 50 * MS]
    lines = plain(heat_lines(replace(a_job(Shape(2, late=1)), heat=heat), 80, 40))
    assert lines[2:4] == ["0     . w w W", "1     . g g G"]


def test_a_letter_of_the_legend_means_one_thing():
    """Parts may share a letter, such as both late launches, if they share its meaning, too."""
    meanings = {}
    for letter, meaning in _LETTERS.values():
        assert meanings.setdefault(letter, meaning) == meaning
        assert (len(letter), letter.islower(), letter.isascii()) == (1, True, True)
    assert len(set(meanings.values())) == len(meanings)


def test_a_cpu_that_is_late_for_want_of_data_has_a_letter_of_its_own():
    heat = a_map(2, 4)
    heat.parts_ns[0, :, LATE] = 20 * MS
    heat.loading_ns[0] = [0, 10 * MS, 11 * MS, 20 * MS]
    heat.parts_ns[0, :, WAIT] = [0, 0, 19 * MS, 21 * MS]
    lines = plain(heat_lines(replace(a_job(Shape(2, late=1)), heat=heat), 80, 40))
    assert lines[2] == "0     l l b w"
    assert "b batch not loaded" in " ".join(lines)


def test_a_step_that_a_rank_lacks_is_blank_and_warm_up_is_left_out():
    heat = a_map(2, 5)
    heat.parts_ns[:, :, LATE] = 60 * MS
    heat.duration_ns[0, 2] = NULL
    heat.warm_up[1, 0] = True
    lines = plain(heat_lines(replace(a_job(Shape(2, late=1)), heat=heat), 80, 40))
    assert lines[1:4] == ["step  1", "0     L   L L", "1     L L L L"]


def test_a_cell_of_several_ranks_and_steps_shows_the_worst():
    random = np.random.default_rng(3)
    heat = a_map(64, 200)
    for part in (WAIT, LATE):
        heat.parts_ns[:, :, part] = random.integers(0, 80 * MS, (64, 200))
    job = replace(a_job(Shape(64, steps=6, late=17)), heat=heat)
    lines = plain(heat_lines(job, 80, 40))
    assert lines[0].endswith("worst of up to 4 ranks × 3 steps")
    assert lines[2].split()[0] == "17"
    others = [rank for rank in range(64) if rank != 17]
    for line, start in zip(lines[3:19], range(0, 64, 4), strict=True):
        ranks = others[start : start + 4]
        label, letters = line.split()
        assert label == f"{ranks[0]}-{ranks[-1]}"
        assert letters == "".join(worst(heat, ranks, at) for at in range(0, 200, 3))


def worst(heat, ranks, first):
    """The letter of the worst of some ranks and three steps: a wait counts nine tenths."""
    cells = [
        (ns * (0.9 if letter == "w" else 1.0), letter.upper() if 2 * ns >= STEP_NS else letter)
        for rank in ranks
        for step in range(first, min(first + 3, 200))
        for ns, letter in [
            max((int(heat.parts_ns[rank, step, part]), name) for part, name in LETTERS)
        ]
    ]
    ns, letter = max(cells)
    return letter if 20 * ns >= STEP_NS else "."


LETTERS = ((WAIT, "w"), (LATE, "l"))


@pytest.mark.parametrize(
    ("ranks", "steps"), [(2, 5), (2, 5_000), (8, 30), (64, 1_000), (1_024, 60)]
)
def test_a_map_of_any_size_fits(ranks, steps):
    heat = a_map(ranks, steps)
    heat.parts_ns[:, ::3, WAIT] = 30 * MS
    job = replace(a_job(Shape(ranks, steps=6, late=min(3, ranks - 1))), heat=heat)
    for width in (40, 80, 160):
        lines = plain(heat_lines(job, width, 40))
        assert 3 < len(lines) <= 40
        assert max(map(cell_len, lines)) <= width
        assert all(line.isascii() for line in lines[1:3])


@pytest.mark.parametrize("suffix", ["", ":x", ":of-an-epoch-of-a-long-name"])
@pytest.mark.parametrize("width", [*range(70, 81), 160])
def test_a_step_number_is_whole_or_left_out(suffix, width):
    """Found on 2,900 steps: 2888 was cut to 288 by the edge of the terminal."""
    heat = a_map(2, 2_900)
    heat.parts_ns[:, ::3, WAIT] = 30 * MS
    names = tuple(f"{number}{suffix}" for number in range(2_900))
    job = replace(a_job(Shape(2, late=1)), heat=replace(heat, steps=names))
    ticks = plain(heat_lines(job, width, 40))[1]
    shown = re.findall(r" (\S+)", ticks)
    columns = [match.start() + 1 - len("step  ") for match in re.finditer(r" \S", ticks)]
    across = -(-2_900 // (width - len("step  ")))
    assert shown == [f"{column * across}{suffix}" for column in columns]
    assert columns[0] == 0
    assert len(ticks) <= width


def test_without_room_late_ranks_stand_before_all_others():
    job = a_job(Shape(64, late=17))
    lines = plain(heat_lines(job, 80, 6))
    assert [line.split()[0] for line in lines[2:4]] == ["17", "others"]
    assert heat_lines(job, 80, 5) == []


def test_a_rank_alone_and_a_job_that_loses_nothing_have_no_map():
    assert heat_lines(a_job(Shape(1, late=0)), 80, 40) == []
    assert heat_lines(replace(a_job(Shape(2, late=1)), heat=a_map(2, 9)), 80, 40) == []
    assert heat_lines(replace(a_job(Shape(2, late=1)), heat=a_map(2, 0)), 80, 40) == []


@pytest.mark.parametrize("name", [HOSTILE, CONTROLS])
def test_names_of_steps_are_text(name):
    heat = a_map(2, 30)
    heat.parts_ns[:, :, WAIT] = 30 * MS
    job = replace(a_job(Shape(2, late=1)), heat=replace(heat, steps=(name,) * 30))
    lines = plain(heat_lines(job, 80, 40))
    assert max(map(cell_len, lines)) <= 80
    assert not {"\x1b", "\x9b", "\u202e", "\x00", "\x07", "\n"} & set("".join(lines))


def test_the_screen_has_the_map_where_there_is_room_and_all_tables_always():
    assert "Ranks and steps" in render_job(a_job(Shape(64)))
    assert "Ranks and steps" not in render_job(a_job(Shape(8)))
    assert "Ranks and steps" in render_job(a_job(Shape(8)), all_tables=True)

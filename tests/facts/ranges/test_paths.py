"""Paths that are numbers until somebody asks for their text."""

import random
import sys
from contextlib import nullcontext

import numpy as np
import pytest

from tests.build import Export
from tests.oracles.plain_library import in_place_of_c
from traceview.base.tables import Texts
from traceview.base.vocabulary.amounts import NAME_CHARACTERS
from traceview.traces.facts.ranges import paths as numbering
from traceview.traces.facts.ranges.paths import (
    UNATTRIBUTED,
    Paths,
    by_pattern,
    number_paths,
)
from traceview.traces.facts.ranges.ranges import range_tree


def made_paths(rng, names):
    """Some paths, each behind its parent, with these names."""
    count = rng.randrange(1, 30)
    parent = [rng.randrange(-1, row) if row else -1 for row in range(count)]
    depth = [0] * count
    for row, above in enumerate(parent):
        depth[row] = depth[above] + 1 if above >= 0 else 0
    named = Texts.of(names)
    codes = [rng.randrange(len(named)) for _ in parent]
    return Paths(*(np.array(each, np.int32) for each in (parent, codes, depth)), named)


def test_one_path_and_all_paths_have_the_same_texts(tmp_path):
    export = Export()
    for step in range(3):
        export.range(f"step_{step}", 100 * step, 100 * step + 90)
        export.range("forward", 100 * step + 1, 100 * step + 40)
        export.range("layer/7", 100 * step + 2, 100 * step + 9)
    tree = range_tree(export.load(tmp_path))
    one_by_one = [tree.paths[number] for number in range(len(tree.paths))]
    assert list(tree.paths) == one_by_one
    assert sorted(one_by_one)[:3] == ["step_0", "step_0/forward", "step_0/forward/layer/7"]
    assert list(tree.patterns) == ["step_#", "step_#/forward", "step_#/forward/layer/#"]
    outside = tree.paths.texts(tree.path[:1] * 0 - 1)
    assert outside[0] == UNATTRIBUTED


def test_deep_and_long_paths_are_cut_alike(tmp_path):
    export = Export()
    for depth in range(60):
        export.range(f"{depth}" + "x" * 300, depth, 1000 - depth)
    export.range("y" * 9000, 100, 200)
    tree = range_tree(export.load(tmp_path))
    one_by_one = [tree.paths[number] for number in range(len(tree.paths))]
    assert list(tree.paths) == one_by_one
    assert max(map(len, one_by_one)) == NAME_CHARACTERS + 1


def test_of_a_few_rows_only_their_own_texts_are_made(tmp_path):
    export = Export()
    for step in range(100):
        export.range(f"step_{step}", 100 * step, 100 * step + 90)
        export.range("forward", 100 * step + 1, 100 * step + 40)
    tree = range_tree(export.load(tmp_path))
    column = tree.paths.texts(np.append(tree.path, -1))
    last = len(column) - 1
    rows = np.array([last, 3, 7, 3, last])
    few = column.take(rows)
    assert "every" not in vars(tree.paths)
    made = few.decode().tolist()
    assert set(few.values) == {made[1], made[2], UNATTRIBUTED}
    assert "every" not in vars(tree.paths)
    assert made == column.decode()[rows].tolist()
    assert column.take(np.ones(len(column), bool)).decode().tolist() == column.decode().tolist()


def test_of_many_rows_only_those_that_are_shown_are_made(tmp_path):
    """A document takes the rows that it shows from a table, itself some rows of the paths."""
    export = Export()
    for step in range(200):
        export.range(f"step_{step}", 100 * step, 100 * step + 90)
        export.range("forward" + "x" * (step % 3), 100 * step + 1, 100 * step + 40)
    tree = range_tree(export.load(tmp_path))
    column = tree.paths.texts(tree.path)
    some = column.take(np.arange(0, 80, 2))
    shown = some.take(np.array([5, 1, 5]))
    assert shown.decode().tolist() == [tree.paths[tree.path[row]] for row in (10, 2, 10)]
    assert len(shown.values) == 2
    assert some.decode()[[5, 1, 5]].tolist() == shown.decode().tolist()
    assert "every" not in vars(tree.paths)


def test_some_paths_have_the_texts_of_each_alone():
    rng = random.Random(4)
    for _ in range(40):
        paths = made_paths(rng, ["a", "x" * 5000, "", "é/", "y" * 1800])
        codes = np.array([rng.randrange(len(paths) + 1) for _ in range(rng.randrange(9))], int)
        alone = [paths[code] if code < len(paths) else UNATTRIBUTED for code in codes.tolist()]
        assert paths.some(codes).tolist() == alone


def test_paths_are_found_by_their_text_without_the_texts_of_all():
    rng = random.Random(2)
    for _ in range(60):
        paths = made_paths(rng, ["", "a", "b", "a/b", "/", "ab"])
        texts = list(paths)
        for text in {*texts, "a/b/a", "c", "a/"}:
            assert paths.called(text) == [at for at, each in enumerate(texts) if each == text]


def made_ranges(rng, names):
    """The row around each of some ranges, which may come later, and the names."""
    count, order = rng.randrange(0, 60), list(range(60))
    if rng.random() < 0.5:
        rng.shuffle(order)
    order = [row for row in order if row < count]
    around = np.full(count, -1, np.int32)
    for place, row in enumerate(order):
        around[row] = rng.choice([-1, *order[max(place - 6, 0) : place]])
    codes = np.array([rng.randrange(-1, names) for _ in range(count)], np.int32)
    return around, Texts(codes, Texts.of([f"n{code}" for code in range(names)]).values)


def by_text(around, names):
    """The path of each range as a tuple of names, and the order in which they first appear."""
    texts, first = [], {}
    for row in range(len(around)):
        chain = [row]
        while around[chain[-1]] >= 0:
            chain.append(int(around[chain[-1]]))
        path = tuple(int(names.codes[each]) for each in reversed(chain))
        texts.append(path)
        for length in range(1, len(path) + 1):
            first.setdefault(path[:length], len(first))
    return texts, first


@pytest.mark.parametrize("way", [nullcontext, in_place_of_c])
@pytest.mark.parametrize("names", [1, 3, 40])
def test_paths_are_numbered_as_they_first_appear(names, way):
    rng = random.Random(names)
    for _ in range(150):
        around, named = made_ranges(rng, names)
        with way():
            path, paths = number_paths(around, named)
        texts, first = by_text(around, named)
        assert path.tolist() == [first[text] for text in texts]
        for text, number in first.items():
            above = first.get(text[:-1], -1)
            found = (paths.parent[number], paths.name[number], paths.depth[number])
            assert found == (above, text[-1], len(text) - 1)


def test_numbers_add_up_along_paths():
    rng = random.Random(3)
    for _ in range(50):
        paths = made_paths(rng, ["a", "b"])
        numbers = np.array([rng.randrange(100) for _ in range(len(paths))])
        expected = numbers.copy()
        for path in range(len(paths)):
            above = int(paths.parent[path])
            while above >= 0:
                expected[above] += numbers[path]
                above = int(paths.parent[above])
        paths.add_up(numbers)
        assert numbers.tolist() == expected.tolist()


def test_patterns_are_numbered_level_by_level_with_c_and_without():
    rng = random.Random(7)
    for _ in range(100):
        paths = made_paths(rng, ["a1", "a2", "b"])
        found, patterns = by_pattern(paths, Texts.of(["a#", "a#", "b"]))
        with in_place_of_c():
            expected, others = by_pattern(paths, Texts.of(["a#", "a#", "b"]))
        assert found.tolist() == expected.tolist()
        assert patterns.depth.tolist() == sorted(patterns.depth.tolist())
        for name in ("parent", "name", "depth"):
            assert getattr(patterns, name).tolist() == getattr(others, name).tolist()


def test_siblings_that_take_long_to_search_are_numbered_alike():
    """Many names below two parents in turns, in another order each time."""
    rng, siblings = random.Random(1), 400
    places, names = [-1, -1], [0, 1]
    for _ in range(4):
        for name in rng.sample(range(2, siblings), siblings - 2):
            places += [0, 1]
            names += [name, name]
    around, codes = np.array(places, np.int32), np.array(names, np.int32)
    named = Texts(codes, Texts.of([str(code) for code in range(siblings)]).values)
    assert numbering._by_search(around, codes) is None
    path, paths = number_paths(around, named)
    assert len(paths) == 2 * siblings - 2
    texts, first = by_text(around, named)
    assert path.tolist() == [first[text] for text in texts]


@pytest.mark.parametrize("length", [1, 3, 400, 5_000])
def test_the_texts_of_deep_paths_are_those_of_names_joined_one_by_one(length):
    count = 12_000 // length + 300
    names = [f"{number % 13:x}" * length for number in range(count)]
    parent, own = np.arange(-1, count - 1), Texts.of(names)
    paths = Paths(*(np.array(each, np.int32) for each in (parent, own.codes, parent + 1)), own)
    asked = np.array([count - 1, 0, count // 2, 299, count - 2, count], np.int32)

    made = paths.some(asked).tolist()

    assert made == [paths.every[path] for path in asked]
    assert made[:-1] == [paths[path] for path in asked[:-1].tolist()]


def test_the_work_for_a_text_does_not_grow_with_the_depth():
    def calls_for_texts(depth):
        parent, names = np.arange(-1, depth - 1), Texts.of(["step"])
        codes = np.zeros(depth, np.int32)
        paths = Paths(*(np.array(each, np.int32) for each in (parent, codes, parent + 1)), names)
        # The beginning that all of them share is read once.
        assert paths[depth - 1].startswith("step/step/")
        calls = 0

        def count(_frame, event, _argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        texts = [paths[path] for path in range(depth - 100, depth)]
        sys.setprofile(None)
        assert set(map(len, texts)) == {NAME_CHARACTERS + 1}
        return calls

    assert calls_for_texts(40_000) <= calls_for_texts(5_000)

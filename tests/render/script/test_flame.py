"""Frames of call paths: their times beside those of a count of every nanosecond."""

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import traceview

MODULE = Path(traceview.__file__).parent / "render/script/timeline/flame.js"
NODE = shutil.which("node")
NAMES = ["step_1", "step_2", "load", "forward", "cudaLaunchKernel"]
CLASSES = [0, 0, 0, 0, 1]
FROM, TO, END = 700, 9_300, 10_000
READ = """
const lanes = given.lanes.map((tracks, at) => ({ kind: at < given.threads ? "thread" : "stream",
    title: `lane ${at}`, group: "GPU", process: 0, tracks }));
const tracks = lanes.flatMap((lane) => lane.tracks.map((track) => Object.assign(track, { lane })));
let offset = 0;
for (const track of tracks) { track.offset = offset; offset += track.start.length; }
const names = { texts: given.names, classes: given.classes };
const model = { lanes, tracks, names, classes: ["range", "call-launch"] };
const told = (onGpu) => byName(framesOf(model, given.from, given.to, onGpu))
    .map(({ text, calls, ns, self }) => [text, calls, ns, self]);
console.log(JSON.stringify([told(false), told(true)]));
"""


def nested(random, begin, end, depth, rows):
    """Ranges inside one another, at random; at the innermost depth calls."""
    at = begin
    while (at := at + int(random.integers(0, 200))) < end - 2:
        last = min(at + int(random.integers(2, 1_500 // 2**depth)), end)
        name = 4 if depth == 3 else int(random.integers(0, 4))
        rows[depth].append((at, last, name))
        if depth < 3:
            nested(random, at, last, depth + 1, rows)
        at = last


def track(rows, content, link=None, **sums):
    start, end, name = (list(column) for column in zip(*rows, strict=True))
    return {"content": content, "start": start, "end": end, "name": name, "link": link, **sums}


def times_by_name(given):
    """Text, calls, time and own time of the names on the CPU, and on the GPU."""
    head = f"import {{ byName, framesOf }} from {json.dumps(MODULE.as_uri())};"
    script = f"{head}const given = {json.dumps(given)};{READ}"
    command = [NODE, "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def by_nanosecond(levels):
    """Time of each name on any level, and on the innermost one, in the window."""
    whole, own = Counter(), Counter()
    for at in range(FROM, TO):
        stack = [name for level in levels if (name := level[at]) is not None]
        whole.update(set(stack))
        own.update(stack[-1:])
    return whole, own


@pytest.mark.skipif(NODE is None, reason="no node here")
@pytest.mark.parametrize("seed", range(2))
def test_times_of_frames_are_those_of_every_nanosecond(seed):
    random = np.random.default_rng(seed)
    threads, want = [], [Counter(), Counter(), Counter()]
    plain = ["step_#", "step_#", "load", "forward", "cudaLaunchKernel"]
    kernels = []
    for _ in range(2):
        rows = [[] for _ in range(4)]
        nested(random, 0, END, 0, rows)
        levels = [[None] * END for _ in rows]
        for level, listed in zip(levels, rows, strict=True):
            for start, end, name in listed:
                level[start:end] = [plain[name]] * (end - start)
        for total, counted in zip(want, by_nanosecond(levels), strict=False):
            total.update(counted)
        first = sum(len(each["start"]) for lane in threads for each in lane)
        first += sum(map(len, rows[:3]))
        # Each call launches work of the same name, a while later.
        for number, (start, end, _) in enumerate(rows[3]):
            path = {level[start] for level in levels[:3]} - {None}
            kernels.append((start + 300, end + 300, first + number, path))
        kinds = ["ranges"] * 3 + ["calls"]
        threads.append([track(each, kind) for each, kind in zip(rows, kinds, strict=True)])
    for start, end, _, path in kernels:
        inside = max(min(end, TO) - max(start, FROM), 0)
        want[2].update(dict.fromkeys((*path, "gemm"), inside))
    streams = [
        [track([(*each[:2], 5)], "operations", [each[2]])]
        for each in sorted(kernels, key=lambda each: each[:2])
    ]
    given = {
        "names": [*NAMES, "gemm"], "classes": [*CLASSES, 1], "lanes": [*threads, *streams],
        "threads": len(threads), "from": FROM, "to": TO,
    }  # fmt: skip
    cpu, gpu = times_by_name(given)
    assert {text: ns for text, _, ns, _ in cpu} == {k: n for k, n in want[0].items() if n}
    assert {text: own for text, _, _, own in cpu if own} == dict(want[1])
    assert {text: ns for text, _, ns, _ in gpu} == {k: n for k, n in want[2].items() if n}
    assert [ns for _, _, ns, _ in gpu] == sorted((ns for _, _, ns, _ in gpu), reverse=True)


@pytest.mark.skipif(NODE is None, reason="no node here")
@pytest.mark.parametrize(("first", "merged"), [(0, 1_000), (500, 999.5)])
def test_merged_rows_are_part_of_the_whole(first, merged):
    """1,000 sums of 100 rows, half busy, then 10 single rows in a range that is named like them."""
    sums = [(at * 1_000, at * 1_000 + 1_000, 0) for at in range(1_000)]
    single = [(1_000_000 + at * 20, 1_000_000 + at * 20 + 10, 0) for at in range(10)]
    counts = {"count": [100] * 1_000 + [1] * 10, "busy": [500] * 1_000 + [10] * 10}
    outer = [*sums, (1_000_000, 1_000_200, 1)]
    ranges = track(outer, "ranges", count=[100] * 1_000 + [1], busy=[500] * 1_000 + [200])
    thread = [ranges, track([*sums, *single], "calls", **counts)]
    stream = [track([*sums, *single], "operations", [0] * 1_010, **counts)]
    given = {
        "names": ["tiny", "merged rows"], "classes": [1, 0], "lanes": [thread, stream],
        "threads": 1, "from": first, "to": 2_000_000,
    }  # fmt: skip
    cpu, gpu = times_by_name(given)
    rows = 100 * (1_000 - (first > 0))
    assert gpu == [["merged rows", rows, 500 * merged, 500 * merged], ["tiny", 10, 100, 100]]
    # Merged calls in merged ranges are as many rows more, and no more time.
    assert cpu == [
        ["merged rows", 2 * rows, 500 * merged, 500 * merged],
        ["merged rows", 1, 200, 100],
        ["tiny", 10, 100, 100],
    ]

"""The list of hits: the longest of them, however many last equally long."""

import itertools
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import traceview

MODULE = Path(traceview.__file__).parent / "render/script/timeline/search.js"
NODE = shutil.which("node")
READ = """
let offset = 0;
const tracks = given.map((lengths) => {
    const start = lengths.map((_, row) => 10 * row);
    const end = start.map((at, row) => at + lengths[row]);
    offset += lengths.length;
    return { offset: offset - lengths.length, name: lengths.map(() => 0), start, end };
});
const told = ({ track: { start, end, offset }, row }) =>
    [start[row], offset + row, end[row] - start[row]];
const listed = (most) => longestHits({ tracks }, [1], offset, most).map(told);
console.log(JSON.stringify(Array.from({ length: offset + 2 }, (_, most) => listed(most)).slice(1)));
"""


@pytest.mark.skipif(NODE is None, reason="no node here")
def test_the_longest_hits_are_listed_in_order_of_time():
    random = np.random.default_rng(0)
    given = [random.integers(0, 4, 12).tolist() for _ in range(4)]
    given[-1][-1] = 9
    head = f"import {{ longestHits }} from {json.dumps(MODULE.as_uri())};"
    script = f"{head}const given = {json.dumps(given)};{READ}"
    command = [NODE, "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    longest = sorted(itertools.chain(*given), reverse=True)
    for most, hits in enumerate(json.loads(done.stdout), start=1):
        assert sorted((length for *_, length in hits), reverse=True) == longest[:most]
        assert hits == sorted(hits)

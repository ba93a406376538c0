"""Damaged traces: the compiled reader and the decoder agree, wherever the text is cut."""

import json
from pathlib import Path
from random import Random

import pytest

from tests.trace.kineto.test_scanner import EVERY, assert_equal, outcome
from tests.trace.kineto.traces import kernel, text
from traceview.traces.trace.kineto import chunks, decoder

pytestmark = pytest.mark.slow
BASES = [text(EVERY * 2).encode(), json.dumps({"traceEvents": EVERY * 2, "x": [{}, {}]}).encode()]
INSERTED = [
    b'"', b"{", b"}", b"[", b"]", b",", b"\0", b"\1", b"\n", b"\\", b"\xff", b"},{", b"nan",
    b'}, {"ph": "X"},', b'":', b'],"a":1}',
]  # fmt: skip


def mutant(random: Random) -> bytes:
    raw = bytearray(random.choice(BASES))
    for _ in range(random.choice([1, 1, 2, 10])):
        at = random.randrange(len(raw))
        kind = random.randrange(9)
        if kind < 2:
            raw[at] ^= 1 << random.randrange(8)
        elif kind < 4:
            del raw[at : at + random.choice([1, 3, 50, 500])]
        elif kind < 8:
            raw[at:at] = random.choice(INSERTED)
        else:
            del raw[max(at, 50) :]
    return bytes(raw)


@pytest.mark.parametrize("seed", range(40))
def test_both_readers_agree(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random, path = Random(seed), tmp_path / "t.json"
    path.write_bytes(raw := mutant(random))
    monkeypatch.setattr(chunks, "CHUNK_BYTES", random.choice([300, 5000, 1 << 24]))
    assert_equal(path)
    trace = outcome(path)
    try:
        events = json.loads(raw)["traceEvents"]
    except (ValueError, TypeError, KeyError):
        return
    if not isinstance(trace, str):
        kernels = [each for each in events if isinstance(each, dict) and each.get("ph") == "X"]
        assert len(trace.kernels) == sum(each.get("cat") == "kernel" for each in kernels)


@pytest.mark.parametrize("broken", ['"dur": 3x', '"dur": ', '"a": "', '"l": [1, 2'])
@pytest.mark.parametrize("every", [1, 2, 100])
def test_work_is_linear_in_the_text(
    broken: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, repaired = [0], decoder.repaired

    def counted(event: bytes) -> tuple[bytes, bool]:
        given[0] += len(event)
        return repaired(event)

    monkeypatch.setattr(decoder, "repaired", counted)
    events = [json.dumps(kernel(f"k{at}", at, 3, at)) for at in range(4000)]
    events[::every] = [each.replace('"dur": 3', broken) for each in events[::every]]
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [\n' + ",\n".join(events) + "\n]}")
    outcome(path)
    assert given[0] <= 40 * path.stat().st_size

"""Ranks of jobs that other projects published, against sums over their plain files.

Set TRACEVIEW_PUBLIC_RANKS to a folder that has them under owner/repository/path.
"""

import gzip
import json
import os
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.places import DATA
from traceview.traces.ranks.clocks import align_clocks, matched_communicators
from traceview.traces.ranks.figures import KINDS, RankFigures
from traceview.traces.ranks.job import MatchedCommunicator
from traceview.traces.ranks.matching import match_ranks
from traceview.traces.ranks.rank_figures import figures_of_ranks
from traceview.traces.trace.load import load

PUBLIC = Path(os.environ.get("TRACEVIEW_PUBLIC_RANKS", "/nowhere"))
KEYS = tomllib.loads((DATA / "public_ranks.toml").read_text())["job"]

pytestmark = pytest.mark.skipif(not PUBLIC.is_dir(), reason="no TRACEVIEW_PUBLIC_RANKS")
each_job = pytest.mark.parametrize("key", KEYS, ids=lambda key: Path(key["path"]).stem)


def files(key: dict[str, Any], folder: Path) -> list[Path]:
    """The recordings of a job, unpacked where they are in an archive."""
    path = PUBLIC / key["repository"] / key["path"]
    if not path.exists():
        pytest.skip("this job is not there")
    if path.is_dir():
        return sorted(path.iterdir())
    if path.suffix != ".gz":
        return [path]
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    return sorted(each for each in folder.rglob("*") if each.is_file())


def ranks_of(paths: list[Path]) -> list[RankFigures]:
    return [rank for path in paths for rank in figures_of_ranks(load(path))]


def matched_of(ranks: list[RankFigures]) -> tuple[MatchedCommunicator, ...]:
    matched = match_ranks(ranks).matched
    return matched_communicators(ranks, matched, align_clocks(ranks, matched))


@each_job
def test_collectives_and_waits(key: dict[str, Any], tmp_path: Path):
    ranks = ranks_of(files(key, tmp_path))
    assert [rank.name.rank for rank in ranks] == list(range(len(key["communication_ns"])))
    communication = [int(rank.collectives.duration_ns.sum()) for rank in ranks]
    assert communication == key["communication_ns"]
    if "kinds" in key:
        for rank in ranks:
            assert [KINDS[kind] for kind in rank.collectives.kind] == key["kinds"]
    matched = matched_of(ranks)
    if "wait_ns" not in key:
        assert not matched
        return
    (world,) = matched
    assert world.ranks == tuple(range(len(ranks)))
    assert np.maximum(world.wait_ns, 0).sum(axis=1).tolist() == key["wait_ns"]
    if "last" in key:
        assert world.last.tolist() == key["last"]


@pytest.mark.parametrize("key", KEYS[:2], ids=lambda key: Path(key["path"]).stem)
def test_exposed_communication(key: dict[str, Any], tmp_path: Path):
    """Microsecond by microsecond: each kernel of NCCL without any other kernel."""
    paths = files(key, tmp_path)
    for path, rank in zip(paths, ranks_of(paths), strict=True):
        computes = set().union(*_microseconds(path, nccl=False))
        alone = [len(times - computes) for times in _microseconds(path, nccl=True)]
        assert rank.collectives.exposed_ns.sum() == 1_000 * sum(alone)


def _microseconds(path: Path, *, nccl: bool) -> list[set[int]]:
    text = path.read_bytes()
    events = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text)["traceEvents"]
    return [
        set(range(int(event["ts"]), int(event["ts"] + event["dur"])))
        for event in events
        if str(event.get("cat")).lower() == "kernel" and ("nccl" in event["name"]) is nccl
    ]

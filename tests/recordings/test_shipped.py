"""What ships with the project tells nothing of the machine it was recorded on."""

import re

import pytest

from tests.conftest import COLLECTIVES, SHIPPED
from tests.places import DATA
from traceview.traces.trace.load import load

PRIVATE = re.compile(
    rb"/(home|root|Users|tmp|mnt)/|(HOME|USER|PATH|PWD|TOKEN|SECRET|PASSWORD|API_KEY)="
    rb"|BEGIN [A-Z ]*PRIVATE KEY|gh[pousr]_[A-Za-z0-9]{20}|hf_[A-Za-z0-9]{20}|AKIA[A-Z0-9]{12}"
)


@pytest.mark.parametrize("name", SHIPPED)
def test_it_holds_no_environment_and_no_home(name, unpack):
    assert not PRIVATE.search(unpack(name).read_bytes())


@pytest.mark.parametrize("name", SHIPPED)
def test_it_is_small(name):
    most = 1_200_000 if name in COLLECTIVES else 170_000
    assert (DATA / f"{name}.sqlite.xz").stat().st_size < most


def test_every_recording_is_described_and_tested():
    files = {path.name.removesuffix(".sqlite.xz") for path in DATA.glob("*.sqlite.xz")}
    assert files == set(SHIPPED)
    described = (DATA / "README.md").read_text()
    assert all(f"`{name}.sqlite.xz`" in described for name in files)


def test_the_cpu_recording_has_the_ranges_that_were_made(unpack):
    """Four steps with three ranges each, one on another thread; four marks; one start/end range."""
    ranges = list(load(unpack("ranges_2023_4")).ranges.rows())
    steps = [row for row in ranges if row["name"].startswith("step_")]
    assert len(steps) == 4
    assert {row["kind"] for row in ranges} == {"push-pop", "start-end", "mark"}
    assert sum(row["kind"] == "mark" for row in ranges) == 4
    workers = [row for row in ranges if row["name"] == "worker"]
    assert {row["domain"] for row in workers} == {"workers"}
    assert {row["thread"] for row in workers}.isdisjoint({row["thread"] for row in steps})

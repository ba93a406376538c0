"""Every number of every shipped recording's report, held to what it was."""

import json

import pytest

from tests.contracts.report_numbers import KEPT, numbers_of, recordings, report_of

RECORDINGS = recordings()
EXPECTED = json.loads(KEPT.read_text())


def test_every_recording_is_held_to_its_numbers():
    assert sorted(EXPECTED) == sorted(RECORDINGS)


@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_numbers_are_unchanged(name):
    assert numbers_of(report_of(RECORDINGS[name])) == EXPECTED[name]

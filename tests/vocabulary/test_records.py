"""What every record of the vocabulary has, and the place where each of them is found."""

import re

import pytest

from traceview.base.vocabulary import activities, causes
from traceview.base.vocabulary.causes import LOST
from traceview.traces.analyses.gpu_idle.remedies import SLOTS


@pytest.mark.parametrize(
    ("module", "records", "names"),
    [
        (causes, causes.CAUSES, causes.CAUSE_NAMES),
        (activities, activities.ACTIVITIES, activities.ACTIVITY_NAMES),
    ],
)
def test_a_constant_is_the_place_of_its_record(module, records, names):
    assert [each.name for each in records] == names
    assert len(set(names)) == len(names) < 256
    for place, name in enumerate(names):
        assert getattr(module, name.upper().replace("-", "_")) == place


@pytest.mark.parametrize("cause", causes.CAUSES, ids=causes.CAUSE_NAMES)
def test_a_cause_with_a_finding_has_a_remedy_whose_fields_are_known(cause):
    assert bool(cause.lost) == bool(cause.action)
    assert set(re.findall(r"\{(\w+)\}", cause.action)) <= set(SLOTS)
    assert cause.idle or cause.lost


@pytest.mark.parametrize("activity", activities.ACTIVITIES, ids=activities.ACTIVITY_NAMES)
def test_an_activity_with_a_finding_has_all_words_of_it(activity):
    assert bool(activity.lost) == bool(activity.amount)
    assert bool(activity.action) == (bool(activity.lost) and activity.name != "cpu")


def test_what_is_said_apart_belongs_to_a_limit_that_is_said():
    apart = [each for each in (*causes.CAUSES, *activities.ACTIVITIES) if each.apart]
    assert {each.limit for each in apart} <= set(LOST)

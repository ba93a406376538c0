"""Values with named fields."""

from dataclasses import dataclass, field, replace

import pytest

from traceview.base.records import frequent_record, record


@record
class Point:
    x: int
    y: int = 2
    seen: list[int] = field(default_factory=list, compare=False, repr=False)


@frequent_record
class Dot:
    x: int
    y: int = 2
    seen: list[int] = field(default_factory=list, compare=False, repr=False)


@dataclass(frozen=True)
class Frozen:
    x: int
    y: int = 2
    seen: list[int] = field(default_factory=list, compare=False, repr=False)


@record
class Place(Point):
    name: str = ""


@record
class Named:
    name: str

    def __repr__(self):
        return self.name


@pytest.mark.parametrize(("one", "other"), [((1,), (1, 2)), ((1,), (1, 3)), ((1, 2, [1]), (1,))])
def test_records_are_equal_as_frozen_dataclasses_are(one, other):
    assert (Point(*one) == Point(*other)) == (Frozen(*one) == Frozen(*other))
    assert len({Point(*one), Point(*other)}) == len({Frozen(*one), Frozen(*other)})
    assert (Dot(*one) == Dot(*other)) == (Frozen(*one) == Frozen(*other))


def test_records_of_two_classes_differ():
    assert Place(1) != Point(1)
    assert Place(1, name="a") != Place(1, name="b")


def test_a_record_prints_as_a_dataclass():
    assert repr(Point(1)) == repr(Frozen(1)).replace("Frozen", "Point")
    assert repr(Place(1, name="a")) == "Place(x=1, y=2, name='a')"


def test_what_a_class_defines_stays():
    assert repr(Named("a")) == "a"


def test_a_record_is_a_dataclass():
    assert replace(Point(1), y=5) == Point(1, 5)


@record
class Checked:
    least: int
    most: int = 9

    def __post_init__(self):
        if self.least > self.most:
            raise ValueError("least above most")


def test_fields_are_in_order_however_they_are_given():
    assert list(vars(Point(y=3, x=1))) == ["x", "y", "seen"] == list(vars(Frozen(y=3, x=1)))
    assert vars(Place(1, name="a")) == {"x": 1, "y": 2, "seen": [], "name": "a"}
    assert Point(1).seen is not Point(1).seen


def test_the_check_of_a_record_runs():
    assert Checked(1).most == 9
    with pytest.raises(ValueError, match="least above most"):
        Checked(10)


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1, 2, [], 4), {}), ((1,), {"x": 2}), ((1,), {"z": 2}), ((), {"y": 2})],
    ids=["too few", "too many", "twice", "unknown", "missing"],
)
def test_fields_that_do_not_fit_are_an_error_as_for_a_dataclass(values, named):
    for cls in (Point, Dot, Frozen):
        with pytest.raises(TypeError):
            cls(*values, **named)
